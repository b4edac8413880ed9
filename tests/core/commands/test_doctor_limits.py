"""The doctor on memory limits: each trap that is seen from outside, and nothing where there is none."""

from dataclasses import replace

import pytest

from exporter.demo.scenario import catalog
from exporter.doctor import memory_limits
from exporter.doctor.memory_limits import memory_limit_checks
from exporter.model.memory_limits import CONTEXT_BYTES
from tests.core.commands.doctor_bench import Sick, examined
from tests.core.commands.limit_nodes import GIB, SLICE, _limit, limit_nodes, well, without
from tests.core.commands.test_doctor import WELL
from tests.core.poller.bench import polled

NAMES = {sick().name for sick in limit_nodes().values()}


async def test_limits_that_work_are_well() -> None:
    checks = await examined(Sick(name="memory limits", scenario=well()))
    assert checks["memory limits"].found == "4 containers on GPUs by dmem, 3 with a hard limit"
    assert [name for name in NAMES & checks.keys() if checks[name].status not in WELL] == []


@pytest.mark.parametrize("name", ["a10-mps", "t4-timeslicing", "mps-daemon", "gke"])
async def test_a_node_without_limits_has_no_line_about_them(name: str) -> None:
    assert not NAMES & (await examined(Sick(name="", scenario=catalog.load(name)))).keys()


async def test_a_reservation_that_was_left_is_named_where_it_was() -> None:
    scenario = without("memory-limits", _limit(SLICE, soft=2 * GIB))
    check = (await examined(Sick(name="", scenario=scenario)))["reserved for nothing"]
    assert check.found.startswith(f"{SLICE} reserves 18.0 GiB")
    assert "16.0 GiB" in check.found


async def test_a_reservation_of_nothing_at_the_top_is_meant() -> None:
    """NVIDIA's document has it as a way to use soft limits in a shared root."""

    def cleared(node) -> None:
        path = node.paths.cgroup_root / "kubepods.slice/dmem.min"
        path.write_text("".join(f"{line.split()[0]} 0\n" for line in path.read_text().splitlines()))

    checks = await examined(Sick(name="", scenario=well(), spoil=cleared))
    assert "reserved too little" not in checks


@pytest.mark.parametrize(("difference", "found"), [(CONTEXT_BYTES, False), (CONTEXT_BYTES + 1, True)])
async def test_meters_disagree_by_more_than_a_context(difference: int, found: bool) -> None:
    async with polled(replace(well(), host_pid=True)) as (_, poller):
        snapshot = await poller.poll()
        rows = [
            replace(row, memory_charged=row.memory_used + difference) if row.holder.pod == "nb-anna" else row
            for row in snapshot.containers
        ]
        changed = replace(snapshot, containers=tuple(rows))
        checks = list(memory_limit_checks(changed, None, poller.evidence, poller.settings))
    assert [check.code for check in checks if check.code] == (["meters-disagree"] if found else [])


async def test_the_server_of_mps_is_no_client_outside_of_it() -> None:
    scenario = catalog.load("mps-daemon")
    assert "clients of MPS" not in await examined(Sick(name="", scenario=scenario))
    assert memory_limits.OUTSIDE_MPS.status == "degraded"
