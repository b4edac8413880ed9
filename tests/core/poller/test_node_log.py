"""What the log says of GPUs that are lost and return, and of their XIDs, on a node that is polled."""

from dataclasses import replace

import pytest

from exporter.demo.node import FakeNode
from exporter.model import Snapshot
from exporter.poll.gpu_log import REPEAT_SECONDS, NodeLog
from exporter.poll.poller import Poller
from tests.core.poller.bench import QUICK, brief_waits, polled
from tests.core.poller.test_lifecycle import FAULT, OVER, happen, node_of, nvml_error
from tests.waiting import LIMIT_SECONDS

PERIOD = 5.0
LOST = nvml_error("GPU_IS_LOST", device="{gpu:1}")
ABSENT = {"kind": "gpu_absent", "at": FAULT, "for": OVER - FAULT, "gpu": 1}
HANG = {"kind": "nvml_hang", "at": FAULT, "for": OVER - FAULT, "function": "nvmlDeviceGetMemoryInfo_v2"}
RELOAD = {"kind": "driver_reload", "at": FAULT, "for": OVER - FAULT}


class Reader:
    """Reads the log as snapshots are recorded, ``PERIOD`` seconds from one to the next."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", logger="exporter.poll.gpu_log")
        self._caplog = caplog
        self._log = NodeLog()
        self._at = 1_000_000.0

    def lines(self, snapshot: Snapshot, after: float = PERIOD) -> list[tuple[str, str]]:
        """Record a snapshot ``after`` seconds later; return level and text of what is logged."""
        self._at += after
        self._caplog.clear()
        self._log.record(replace(snapshot, timestamp=self._at))
        return [(each.levelname, each.message) for each in self._caplog.records]


def uuid_of(node: FakeNode, place: int) -> str:
    """Return the uuid of a GPU by its place in the scenario."""
    return node.scenario.gpus[place].uuid


async def xid(node: FakeNode, poller: Poller, code: int, times: int = 1) -> Snapshot:
    """Let the first GPU report a code, and poll."""
    for _ in range(times):
        happen(node, code)
    assert node.nvml.events.settle(LIMIT_SECONDS)
    return await poller.poll()


@pytest.mark.parametrize(
    ("fault", "how"),
    [(LOST, "no answer"), (ABSENT, "not listed by the driver")],
    ids=["lost", "unplugged"],
)
async def test_a_lost_gpu_and_its_return_are_a_line_each(fault, how, caplog: pytest.LogCaptureFixture):
    async with polled(node_of(fault)) as (node, poller):
        reader, name = Reader(caplog), f"GPU 1 ({uuid_of(node, 1)})"
        assert reader.lines(await poller.poll()) == []
        await node.step(FAULT)
        lost = await poller.poll()
        held = "; held by ml/p1/main" if any(row.holder.pod == "p1" for row in lost.containers) else ""
        assert reader.lines(lost) == [("WARNING", f"{name} lost: {how}{held}; check the kernel log")]
        assert reader.lines(await poller.poll()) == []
        await node.step(OVER)
        assert reader.lines(await poller.poll()) == [("INFO", f"{name} back after 10 s")]
        assert reader.lines(await poller.poll()) == []


async def test_a_gpu_that_is_lost_at_the_start_is_logged(caplog: pytest.LogCaptureFixture):
    async with polled(node_of(LOST)) as (node, poller):
        await poller.poll()
        await node.step(FAULT)
        await poller.poll()
        ((level, text),) = Reader(caplog).lines(await poller.poll())
        assert level == "WARNING"
        assert text.startswith(f"GPU 1 ({uuid_of(node, 1)}) lost: no answer")


async def test_gpus_that_are_lost_together_share_a_line(caplog: pytest.LogCaptureFixture):
    both = [nvml_error("GPU_IS_LOST", device=f"{{gpu:{place}}}") for place in (0, 1)]
    async with polled(node_of(*both, gpus=3)) as (node, poller):
        reader = Reader(caplog)
        names = ", ".join(f"GPU {place} ({uuid_of(node, place)})" for place in (0, 1))
        assert reader.lines(await poller.poll()) == []
        await node.step(FAULT)
        ((level, text),) = reader.lines(await poller.poll())
        assert level == "WARNING"
        assert text.startswith(f"{names} lost: no answer")
        await node.step(OVER)
        assert reader.lines(await poller.poll()) == [("INFO", f"{names} back after 5 s")]


@pytest.mark.parametrize("fault", [HANG, RELOAD], ids=["hang", "reload"])
async def test_a_driver_that_fails_as_a_whole_loses_no_gpu(fault, caplog: pytest.LogCaptureFixture):
    async with polled(node_of(fault), **QUICK) as (node, poller):
        reader = Reader(caplog)
        assert reader.lines(await poller.poll()) == []
        await node.step(FAULT)
        with brief_waits(poller, *(["nvml"] if fault is HANG else [])):
            for _ in range(3):
                assert reader.lines(await poller.poll()) == []
        node.nvml.release()
        await node.step(OVER)
        for _ in range(3):
            assert reader.lines(await poller.poll()) == []


async def test_an_xid_is_logged_once_with_its_meaning_gpu_and_containers(caplog: pytest.LogCaptureFixture):
    async with polled(node_of()) as (node, poller):
        reader, name = Reader(caplog), f"GPU 0 ({uuid_of(node, 0)})"
        assert reader.lines(await poller.poll()) == []
        text = f"{name} reported XID 79: The GPU no longer answers on the PCIe bus; held by ml/p0/main"
        assert reader.lines(await xid(node, poller, 79)) == [("WARNING", text)]
        assert reader.lines(await poller.poll()) == []


async def test_a_repeated_xid_is_one_line_a_minute_with_its_number(caplog: pytest.LogCaptureFixture):
    """Another code has its own lines."""
    async with polled(node_of()) as (node, poller):
        reader = Reader(caplog)
        reader.lines(await poller.poll())
        (first,) = reader.lines(await xid(node, poller, 31))
        assert "reported XID 31: " in first[1]
        assert reader.lines(await xid(node, poller, 31, times=3)) == []
        (other,) = reader.lines(await xid(node, poller, 13))
        assert "reported XID 13: " in other[1]
        (again,) = reader.lines(await xid(node, poller, 31), after=REPEAT_SECONDS)
        assert "reported XID 31 4 times: " in again[1]


async def test_an_xid_is_not_logged_again_when_its_gpu_returns(caplog: pytest.LogCaptureFixture):
    async with polled(node_of(ABSENT | {"gpu": 0})) as (node, poller):
        reader = Reader(caplog)
        reader.lines(await poller.poll())
        assert len(reader.lines(await xid(node, poller, 79))) == 1
        await node.step(FAULT)
        assert len(reader.lines(await poller.poll(), after=REPEAT_SECONDS)) == 1
        await node.step(OVER)
        ((_, text),) = reader.lines(await poller.poll(), after=REPEAT_SECONDS)
        assert text.endswith("back after 1 min")
