"""An example node that has a value for every family, a bare one that knows nothing, and readers of pages."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from exporter.model import (
    CollectorHealth,
    ConfidentialComputing,
    ContainerRef,
    ContainerRow,
    DeviceEvent,
    DeviceKey,
    DriverInfo,
    EventRow,
    GpuIdentity,
    GpuReading,
    GpuRow,
    HeldClaim,
    Memory,
    MigReading,
    MigRow,
    NodeRow,
    PodRow,
    Raised,
    SliceCount,
    Snapshot,
    Totals,
    VgpuReading,
    VgpuRow,
)
from exporter.model.balances import ALLOCATION_CLASSES, NANOSECONDS, USE_CLASSES, Balances
from exporter.model.mig_profiles import MigProfile, MigProfiles
from exporter.model.snapshot import Disagreement
from tests.core.exposition.everything import COSTS, MIG_READINGS, NOW, READINGS, WITHOUT_COUNTERS, events

GIB = 1024**3
SHARED = DeviceKey("GPU-shared")
MIG_A = DeviceKey("GPU-mig", "MIG-a")
MIG_B = DeviceKey("GPU-mig", "MIG-b")
CONFIDENTIAL = ConfidentialComputing(
    enabled=True, environment="production", developer_tools=False, multi_gpu="none", ready=True
)


MIG_PROFILES = MigProfiles(
    "driver", (MigProfile(name="1g.5gb", memory=4864 * 1024**2, multiprocessors=14, instances=7),)
)
BALANCES = Balances(
    observed=21 * NANOSECONDS,
    allocation={name: number * NANOSECONDS for number, name in enumerate(ALLOCATION_CLASSES)},
    use={name: (9, 6, 3, 2, 1)[number] * NANOSECONDS for number, name in enumerate(USE_CLASSES)},
)
MIG_MEMORY = {"mig_memory_used": 5, "mig_memory_free": 3, "mig_memory_adjacent": 2}


def _gpu(uuid: str, index: int, minor: int, sharing: str, **facts) -> GpuRow:
    identity = GpuIdentity(
        uuid=uuid,
        index=index,
        minor=minor,
        model="NVIDIA A100-SXM4-40GB",
        pci_bus_id=f"00000000:0{index}:00.0",
        serial="1324220",
        architecture="ampere",
        part_number="900-21001-0000-000",
        inforom="G520.0200.00.05",
        gsp_firmware="570.86",
        compute_capability="8.0",
    )
    reading = GpuReading(
        identity=identity,
        read_at=NOW,
        slow_read_at=NOW,
        memory=Memory(total=40 * GIB, used=10 * GIB, free=29 * GIB, reserved=GIB),
        utilization_percent=37,
        memory_copy_percent=7,
        power_milliwatts=61_234,
        energy_millijoules=123_456_789,
        temperature_celsius=54,
        memory_temperature_celsius=60,
        clocks_megahertz={"sm": 1410, "memory": 1215, "video": 1545},
        fan_percent=30,
        pcie_replays=2,
        compute_mode="default",
        mig_enabled=sharing == "mig",
        unsupported=("a", "b", "c"),
        **READINGS | ({} if sharing != "mig" else WITHOUT_COUNTERS),
    )
    return GpuRow(
        identity=identity,
        reading=reading,
        sharing=sharing,
        slices=(SliceCount("nvidia.com/gpu.shared", 10, 2, 1, 1, 0),),
        holders=2,
        memory_entitled=8 * GIB,
        unattributed_memory=GIB // 2,
        unattributed_utilization=0.02,
        unattributed_energy_joules=12.5,
        disagreement=Disagreement(0.02, 0.1),
        balances=BALANCES,
        watched=True,
        events=events(uuid, "MIG-a" if sharing == "mig" else ""),
        clock_events={"power_cap": 3, "hardware_thermal": 1},
        conditions={"lost": False, "needs_reset": True},
        raised={"needs_reset": Raised(since=1_699_999_000.0, causes=("recovery action reset",))},
        **facts,
    )


def _mig(key: DeviceKey, gi: int) -> MigRow:
    reading = MigReading(
        uuid=key.mig_uuid,
        gi=gi,
        ci=0,
        profile="3g.20gb",
        memory=Memory(total=20 * GIB, used=4 * GIB, free=16 * GIB, reserved=0),
        compute_slices=3,
        memory_slices=4,
        multiprocessors=42,
        **MIG_READINGS,
    )
    return MigRow(
        device=key,
        reading=reading,
        slices=(SliceCount("nvidia.com/mig-3g.20gb", 1, 1, 0, 0),),
        holders=1,
        unattributed_memory=0,
        compute_used=0.2,
        unattributed_utilization=0.05,
    )


def _container(name: str, key: DeviceKey, **facts) -> ContainerRow:
    row = ContainerRow(
        holder=ContainerRef("ml", name, "main"),
        device=key,
        resource="nvidia.com/gpu.shared",
        sharing="time-slicing",
        pod_uid=f"uid-{name}",
        model="NVIDIA A100-SXM4-40GB",
        slices=1,
        memory_entitled=4 * GIB,
        compute_entitled=0.1,
        memory_used=3 * GIB,
        compute_used=0.05,
        processes=1,
        memory_source="process",
        compute_source="process",
        claims=(HeldClaim("ml", f"{name}-gpu", "gpu", "gpu.nvidia.com", "gpu-node-07", "gpu-0"),),
        health="Healthy",
        limit_backend="dmem",
        memory_charged=3 * GIB,
        memory_guaranteed=2 * GIB,
        memory_limit=4 * GIB,
        totals=Totals(
            first_seen=NOW - 9000,
            memory_peak=5 * GIB,
            held_seconds=9000.0,
            memory_measured_seconds=8000.0,
            entitled_gpu_seconds=900.0,
            measured_gpu_seconds=850.0,
            used_gpu_seconds=450.5,
            energy_joules=1234.5,
            last_active=NOW - 7200,
        ),
    )
    return replace(row, **facts)


@pytest.fixture(scope="session")
def container() -> Callable[..., ContainerRow]:
    """Return a function for the row of a container with every field known; keywords replace fields."""
    return _container


@pytest.fixture(scope="session")
def full() -> Snapshot:
    """Return a node with a time-sliced GPU and one in MIG mode, with every value known."""
    return Snapshot(
        timestamp=NOW,
        sequence=7,
        node=NodeRow(
            name="gpu-node-07",
            driver=DriverInfo(
                driver_version="570.86",
                nvml_version="12.570.86",
                cuda_version="12.8",
                confidential=CONFIDENTIAL,
            ),
            gpu_count=2,
            process_view=True,
            allocations_read_at=NOW - 2,
            unlisted_pods=1,
            mig_profiles={"NVIDIA A100-SXM4-40GB": MIG_PROFILES},
            unresolved={"nvidia.com/gpu": 1},
            blind={"gpushare": "which GPU a container has"},
            nvml_errors={
                ("GPU-shared", "nvmlDeviceGetPowerUsage", "Unknown"): 4,
                ("", "nvmlInit", "Timeout"): 1,
            },
            inconsistent={("GPU-mig", "MIG-a", "memory"): 2, ("GPU-shared", "", "compute"): 1},
            costs=COSTS,
        ),
        gpus=(
            _gpu("GPU-shared", 0, 1, "time-slicing", jobs=("4711", "4712")),
            _gpu("GPU-mig", 1, 0, "mig", mig_slices_used=6, mig_slices_free=1, **MIG_MEMORY),
        ),
        migs=(replace(_mig(MIG_A, 1), jobs=("4713",)), _mig(MIG_B, 2)),
        vgpus=(
            VgpuRow(uuid="GPU-shared", reading=READINGS["vgpus"][0], holder=ContainerRef("vm", "v", "c")),
        ),
        events=(EventRow(event=DeviceEvent(at=NOW - 400, uuid="GPU-shared", kind="xid", xid=31)),),
        containers=(
            _container("nb-anna", SHARED),
            _container("nb-li", SHARED, compute_used=0.0),
            _container("train-0", MIG_A, isolation="hard", slices=1, resource="nvidia.com/mig-3g.20gb"),
        ),
        pods=(
            PodRow(
                namespace="ml",
                name="nb-anna",
                uid="uid-nb-anna",
                labels=(("app.kubernetes.io/name", "notebook"), ("team", "vision")),
            ),
            PodRow(namespace="ml", name="train-0", uid="uid-train-0", labels=(("team", "nlp"),)),
        ),
        collectors=(
            CollectorHealth(name="nvml", success=True, duration=0.02, last_success=NOW),
            CollectorHealth(
                name="podresources",
                success=False,
                duration=1.0,
                last_success=NOW - 60,
                errors={"timeout": 3},
                message="The kubelet did not answer; check the socket.",
            ),
        ),
    )


@pytest.fixture(scope="session")
def bare() -> Snapshot:
    """Return one entity of each level, with every value unknown."""
    identity = GpuIdentity(uuid="GPU-x", index=0)
    mig = DeviceKey("GPU-x", "MIG-x")
    return Snapshot(
        timestamp=NOW,
        sequence=1,
        node=NodeRow(name="node"),
        gpus=(GpuRow(identity=identity, reading=GpuReading(identity=identity)),),
        migs=(MigRow(device=mig, reading=MigReading(uuid="MIG-x", gi=0, ci=0)),),
        vgpus=(VgpuRow(uuid="GPU-x", reading=VgpuReading(uuid="vgpu-x")),),
        containers=(
            ContainerRow(holder=ContainerRef("a", "b", "c"), device=mig, totals=Totals(first_seen=1.0)),
        ),
        collectors=(CollectorHealth(name="nvml", success=False),),
    )


@pytest.fixture(scope="session")
def parse() -> Callable[[bytes, Format], dict]:
    """Read a page with the parser of prometheus_client: {(sample name, sorted labels): value}.

    It puts _total behind every counter, which those under DCGM's names do not have on the page.
    """

    def read(page: bytes, fmt: Format) -> dict:
        families = (parse_openmetrics if fmt.openmetrics else parse_text)(page.decode())
        samples = [sample for family in families for sample in family.samples]
        values = {
            (_printed(sample.name), tuple(sorted(sample.labels.items()))): sample.value for sample in samples
        }
        assert len(values) == len(samples)
        return values

    return read


def _printed(name: str) -> str:
    return name.removesuffix("_total") if name.startswith("DCGM_") else name


@pytest.fixture(scope="session")
def values(parse) -> Callable[..., dict]:
    """Render a snapshot and return {sample name: {label: value} by the sorted values of its labels}."""

    def read(snapshot: Snapshot, dcgm_names="all", **options) -> dict[str, dict]:
        selection = Selection(metric_set="full", dcgm_names=dcgm_names)
        page = Exposition(selection, **options).page(snapshot).body(Format.TEXT)
        found: dict[str, dict] = {}
        for (name, labels), value in parse(page, Format.TEXT).items():
            found.setdefault(name, {})[labels] = value
        return found

    return read
