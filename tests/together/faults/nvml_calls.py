"""Which functions of NVML the product calls, on which devices, and how each comes to be asked again."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from exporter.demo.scenario import MigLayout, Scenario
from tests.together.faults.compare import changed, missing
from tests.together.faults.harness import WARMING_POLLS, Watch, watched
from tests.together.faults.nvml_nodes import CUT, IDLE

BUS = "bus/pci/drivers/nvidia"
# What is asked once for as long as a MIG device exists.
OF_LAYOUT = frozenset(
    {"nvmlDeviceGetAttributes_v2", "nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"}
)

# Asked about a GPU, and about one MIG device or slot at a time.
OF_PARTS = OF_LAYOUT | {
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlGpmMigSampleGet",
}


@dataclass(frozen=True, slots=True)
class Use:
    """A function and the devices (uuids) that it is asked about, "" for none.

    ``always`` are those that it is asked about at every poll. Of the others it is asked when the library is
    opened, and again once a minute or when the GPU is cut.
    """

    function: str
    devices: tuple[str, ...]
    always: frozenset[str]


@dataclass(slots=True)
class Driver:
    """The driver of a watched node: which calls it gets, and how they are repeated.

    ``passing`` are the series that leave, or fall behind, for a poll whenever the library is reopened.
    ``unsupported`` is how many calls each GPU turns out not to support then.
    """

    watch: Watch
    uses: Mapping[str, Use]
    passing: frozenset[str]
    unsupported: Mapping[str, float]
    changes: int = 0

    def reopen(self) -> None:
        """Have the next poll reopen the library: the kernel module is bound to another device."""
        folder = self.watch.node.paths.sys_root / BUS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"0000:{self.changes & 0xFF:02x}:1f.7").unlink(missing_ok=True)
        self.changes += 1
        (folder / f"0000:{self.changes & 0xFF:02x}:1f.7").touch()

    async def recut(self) -> None:
        """Take the idle MIG device away for a poll, so that it is a new one when it comes back."""
        mig = self.watch.node.scenario.gpus[CUT].mig
        assert mig is not None
        left = mig.instances[:IDLE]
        await self.watch.put(MigLayout(kind="mig_layout", gpu=CUT, instances=left))
        await self.watch.poll()

    def again(self, function: str, *, asked: bool) -> Callable[[], Awaitable[None]] | None:
        """Return what has a function asked again, None where it is ``asked`` at every poll."""
        if function in OF_LAYOUT:
            return self.recut
        return None if asked else self._reopened

    async def _reopened(self) -> None:
        self.reopen()


async def driver_of(watch: Watch) -> Driver:
    """Record what a node's driver is asked, from the first poll on and when it is reopened."""
    driver = Driver(watch, {}, frozenset(), {})
    await watch.before()
    driver.reopen()
    await watch.poll()
    asked: Counter[tuple[str, str]] = Counter()
    for _ in range(WARMING_POLLS):
        earlier = Counter(watch.node.nvml.calls)
        await watch.poll()
        asked.update((watch.node.nvml.calls - earlier).keys())
    baseline = await watch.rest()
    # One of the polls enumerates all MIG devices: in the others events report changes of them.
    steady = {key for key, polls in asked.items() if polls >= WARMING_POLLS - 1}
    driver.reopen()
    fresh = await watch.poll()
    gone = {text.removesuffix(" is gone") for text in missing(baseline, fresh)}
    gone |= fresh.samples.keys() - baseline.page.samples.keys()
    second = await watch.poll()
    late = {text.split(" is ")[0] for text in changed(baseline, second, watch.node.time, lambda _: False)}
    found: dict[str, set[str]] = {}
    for function, device in watch.node.nvml.calls:
        found.setdefault(function, set()).add(device)
    uses = {
        function: Use(
            function,
            tuple(sorted(devices)),
            frozenset(device for device in devices if (function, device) in steady),
        )
        for function, devices in sorted(found.items())
    }
    unsupported = {labels["uuid"]: count for labels, count in second.series("gpuslice_nvml_unsupported")}
    await watch.rest()
    return replace(driver, uses=uses, passing=frozenset(gone | late), unsupported=unsupported)


async def asked_of(scenario: Scenario) -> frozenset[str]:
    """Return the functions of NVML that are called on a node."""
    async with watched(scenario, step=16.0) as watch:
        return frozenset((await driver_of(watch)).uses)
