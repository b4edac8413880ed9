"""NVML as a compiled library: what a compiler lays out is what the binding reads, and calls free the loop."""

import asyncio
import subprocess
from collections.abc import Iterator
from ctypes import CDLL, c_int
from pathlib import Path

import pytest

from exporter.model import (
    Bar1,
    C2c,
    ConfidentialComputing,
    DeviceProcess,
    DriverInfo,
    Ecc,
    EncoderSessions,
    Fabric,
    GpuIdentity,
    GpuReading,
    HardwareReading,
    Memory,
    MigReading,
    Nvlink,
    PeerLink,
    Repairs,
    Topology,
)
from exporter.model.mig_profiles import MigProfile, MigProfiles
from exporter.nvml import NvmlSource
from tests.core.hardware.making import GIB, MIB, nvml
from tests.core.hardware.tiny import compiler
from tests.waiting import wait_until_async

PROFILES = MigProfiles(
    "driver",
    (
        MigProfile(name="4g.20gb", memory=19968 * MIB, multiprocessors=56, instances=2),
        MigProfile(name="1g.5gb+me", memory=4864 * MIB, multiprocessors=14, instances=3),
    ),
)
SOURCE = Path(__file__).with_name("stub_nvml.c")
FLAGS = ("-shared", "-fPIC", "-O1")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stub."""
    library = tmp_path_factory.mktemp("driver") / "libnvidia-ml-stub.so.1"
    subprocess.run([compiler(), *FLAGS, "-o", library, SOURCE], check=True)
    return library


class Stub:
    """The knobs of the compiled library, by the names of its variables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = CDLL(str(path))

    def get(self, name: str) -> int:
        """Read a variable."""
        return c_int.in_dll(self._library, f"stub_{name}").value

    def set(self, name: str, value: int) -> None:
        """Write a variable."""
        c_int.in_dll(self._library, f"stub_{name}").value = value


@pytest.fixture
def stub(compiled: Path) -> Iterator[Stub]:
    """Return the library; no call waits in it afterwards."""
    stub = Stub(compiled)
    yield stub
    stub.set("blocked_gpu", -1)


async def swept(stub: Stub) -> HardwareReading:
    """Sweep once with a source of its own."""
    source = NvmlSource(nvml(path=stub.path))
    reading = await source.read()
    await source.close()
    return reading


def same_but_time(reading: GpuReading, **expected: object) -> GpuReading:
    """Return the expected reading of a first sweep, with the times of the real one."""
    assert reading.slow_read_at is not None
    times = {
        "sweep": 1,
        "read_at": reading.read_at,
        "slow_read_at": reading.slow_read_at,
        "read_monotonic": reading.read_monotonic,
    }
    return GpuReading(**expected, **times, unsupported=reading.unsupported, withheld=reading.withheld)


async def test_every_reading_of_a_whole_gpu(stub: Stub):
    """Each struct of the binding has the compiler's layout."""
    reading = (await swept(stub)).gpus[0]
    assert reading == same_but_time(
        reading,
        identity=GpuIdentity(
            uuid="GPU-0",
            index=0,
            minor=4,
            model="NVIDIA Stub",
            pci_bus_id="00000000:07:00.0",
            architecture="Hopper",
        ),
        memory=Memory(total=16 * GIB, reserved=1 * GIB, free=12 * GIB, used=3 * GIB),
        bar1=Bar1(total=256 * MIB, used=5),
        utilization_percent=63,
        memory_copy_percent=21,
        encoder_sessions=EncoderSessions(count=3, average_fps=31, average_latency_microseconds=903),
        power_milliwatts=111_222,
        power_parts_milliwatts={"average": 110_000, "memory": 110_002},
        power_limits_milliwatts={"min": 100_000, "max": 320_000},
        energy_millijoules=5_000_000_000_123,
        temperature_celsius=58,
        memory_temperature_celsius=71,
        temperature_margin_celsius=-4,
        temperature_limits_celsius={"shutdown": -8},
        clocks_megahertz={"graphics": 1000, "sm": 1001, "memory": 1002, "video": 1003},
        violations_nanoseconds={"power": 4_000_000_000_074, "thermal": 75},
        pcie_replays=17,
        traffic_bytes={
            "pcie_transmit": 5_000_000_000_197,
            "pcie_receive": 5_000_000_000_198,
            "nvlink_transmit": 7 * 1024,
        },
        nvlink=Nvlink(
            links=2,
            active=1,
            packet_errors={"effective": 219},
            recoveries={"successful": 213},
            bit_error_ratios={"symbol": 7e-15},
        ),
        c2c=C2c(
            enabled=True,
            links=2,
            states={0: True, 1: False},
            speeds={0: 44_712, 1: 44_713},
            errors={"replay": 232},
        ),
        fabric=Fabric(
            state="completed",
            cluster="01020304-0506-0708-090a-0b0c0d0e0f10",
            clique=4711,
            problems={"route_recovery": False, "incorrect_configuration": True},
            misconfiguration="insufficient_nvlinks",
        ),
        protected_memory=Memory(total=15 * GIB, free=9 * GIB, used=6 * GIB),
        ecc=Ecc(
            errors={("corrected", "volatile"): 6_000_000_000_003},
            by_location={
                (severity, scope, location): 9_000_000_000_000 + place
                for severity, scope, location, place in (
                    ("corrected", "volatile", "dram", 2),
                    ("corrected", "volatile", "sram", 7),
                    ("corrected", "aggregate", "dram", 12),
                    ("corrected", "aggregate", "sram", 17),
                    ("uncorrected", "volatile", "dram", 102),
                    ("uncorrected", "volatile", "sram", 107),
                    ("uncorrected", "aggregate", "dram", 112),
                    ("uncorrected", "aggregate", "sram", 117),
                )
            },
        ),
        repairs=Repairs(
            remapped_rows={"corrected": 142},
            row_banks={"max": 640, "high": 1, "partial": 2, "low": 3, "none": 4},
            channel_repair_pending=False,
            tpc_repair_pending=False,
        ),
        topology=Topology(numa_node=0, cpus="0-3,64"),
        compute_mode="exclusive_process",
        mig_enabled=False,
        mig_pending=False,
        mig_profiles=PROFILES,
        processes=(
            DeviceProcess(pid=1001, memory=2 * GIB, kinds=frozenset({"compute"})),
            DeviceProcess(pid=1002, memory=None, kinds=frozenset({"compute"})),
        ),
        process_utilization={1001: 44, 1002: 12},
    )


async def test_every_reading_of_a_partitioned_gpu(stub: Stub):
    reading = (await swept(stub)).gpus[1]
    assert reading.mig_profiles == PROFILES
    assert (reading.mig_enabled, reading.mig_slices, reading.power_milliwatts) == (True, 7, 333_444)
    assert (reading.utilization_percent, reading.processes, reading.process_utilization) == (None,) * 3
    assert reading.mig == (
        MigReading(
            uuid="MIG-a",
            gi=1,
            ci=0,
            profile="4g.20gb",
            memory=Memory(total=20 * GIB, reserved=3, free=20 * GIB - 10, used=7),
            compute_slices=4,
            instance_slices=4,
            memory_slices=4,
            multiprocessors=56,
            bar1=Bar1(total=256 * MIB, used=1),
            engines={"copy": 4, "decoder": 2, "encoder": 11, "jpeg": 12, "ofa": 13},
            gi_profile=5,
            gi_start=31,
            gi_size=41,
            processes=(DeviceProcess(pid=2001, memory=4 * GIB, kinds=frozenset({"compute"})),),
        ),
        MigReading(
            uuid="MIG-b",
            gi=2,
            ci=3,
            profile="1c.3g.20gb",
            memory=Memory(total=20 * GIB, reserved=5, free=20 * GIB - 16, used=11),
            compute_slices=1,
            instance_slices=3,
            memory_slices=4,
            multiprocessors=14,
            bar1=Bar1(total=256 * MIB, used=2),
            engines={"copy": 3, "decoder": 1, "encoder": 21, "jpeg": 22, "ofa": 23},
            gi_profile=9,
            gi_start=32,
            gi_size=42,
            processes=(),
        ),
    )


async def test_topology(stub: Stub):
    source = NvmlSource(nvml(path=stub.path))
    await source.read()
    one, other = (await source.read()).gpus
    assert one.topology == Topology(
        numa_node=0, cpus="0-3,64", peers={"GPU-1": PeerLink(pcie="PXB", nvlinks=1)}
    )
    assert other.topology == Topology(
        numa_node=1, cpus="4-7,64", peers={"GPU-0": PeerLink(pcie="PXB", nvlinks=1)}
    )
    await source.close()


async def test_missing_functions_are_no_failure(stub: Stub):
    reading = await swept(stub)
    assert reading.errors == {}
    assert reading.gpu_count == 2
    assert reading.driver == DriverInfo(
        driver_version="580.65.06",
        nvml_version="13.580.65.06",
        cuda_version="13.1",
        confidential=ConfidentialComputing(
            enabled=True,
            environment="production",
            developer_tools=True,
            multi_gpu="nvlink_encryption",
            ready=False,
        ),
    )
    assert reading.gpus[0].fan_percent is None
    assert "nvmlDeviceGetFanSpeed" in reading.gpus[0].unsupported


async def test_samples_are_requested_since_the_last_one(stub: Stub):
    source = NvmlSource(nvml(path=stub.path))
    assert (await source.read()).gpus[0].process_utilization == {1001: 44, 1002: 12}
    assert (await source.read()).gpus[0].process_utilization == {}
    await source.close()


async def test_the_driver_is_opened_once_and_closed_once(stub: Stub):
    source = NvmlSource(nvml(path=stub.path))
    for _ in range(3):
        await source.read()
        assert stub.get("opened") == 1
    await source.close()
    assert stub.get("opened") == 0


async def test_the_driver_is_found_below_known_roots(stub: Stub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exporter.nvml.driver.library.DRIVER_ROOTS", ("/nowhere", str(stub.path.parent)))
    monkeypatch.setattr("exporter.nvml.driver.library.SONAME", stub.path.name)
    source = NvmlSource(nvml())
    assert (await source.read()).driver.driver_version == "580.65.06"
    await source.close()


async def test_a_call_that_does_not_return_blocks_neither_the_loop_nor_the_gpus_before_it(stub: Stub):
    """All GPUs are read once the call returns."""
    stub.set("blocked_gpu", 1)
    source = NvmlSource(nvml(path=stub.path))
    reading = asyncio.ensure_future(source.read())
    await wait_until_async(lambda: stub.get("waiting"))
    assert not reading.done()
    assert [gpu.identity.uuid for gpu in source.latest.gpus] == ["GPU-0"]
    stub.set("blocked_gpu", -1)
    assert [gpu.identity.uuid for gpu in (await reading).gpus] == ["GPU-0", "GPU-1"]
    await source.close()
