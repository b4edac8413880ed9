"""Identity and settings of GPUs; MIG devices, partitions and vGPUs."""

from dashboards.board import Panel
from dashboards.clashes import unclashed
from dashboards.hardware_now import INDEX, NODE, UUID
from dashboards.hardware_series import of_gpu
from dashboards.panels import ON_OFF, YES_IS_GOOD, Query, timeline
from dashboards.promql import DEVICE, GPU, ON_GPUS, ON_NODES, TARGET, by_gpu, by_mig, gpu_names
from dashboards.shares import of_gpus
from dashboards.tables import Column, Nothing, listing

_WHOLE = f"max by (cluster, node, gpu, uuid) ({gpu_names(ON_GPUS)})"

_VIRTUALIZATION = f"gpuslice_gpu_virtualization_info{{{ON_GPUS}"


def identity() -> tuple[Panel, ...]:
    """Return the row of identities and settings."""
    return (_identity(), _settings())


def _identity() -> Panel:
    names = ("model", "architecture", "serial", "pci_bus_id", "minor", "vendor", "vbios", "mig", "sharing")
    board = ("part_number", "inforom", "gsp_firmware", "compute_capability")
    driver = (
        f"max by (cluster, node, gpu, uuid, driver_version, cuda_version) ({gpu_names(ON_GPUS)} "
        f"* on ({TARGET}) group_left (driver_version, cuda_version) "
        f"gpuslice_node_info{{{ON_NODES}}})"
    )
    return listing(
        "Identity",
        "Identity of each device. Unknown: not reported. For devices of other vendors only data of their "
        "device plugin.",
        [
            NODE,
            INDEX,
            Column(name="model", title="Model"),
            Column(name="architecture", title="Architecture"),
            Column(name="serial", title="Serial number"),
            Column(name="pci_bus_id", title="PCI bus"),
            Column(name="minor", title="Minor number"),
            Column(name="mig", title="MIG"),
            Column(name="sharing", title="Sharing"),
            Column(name="vbios", title="VBIOS"),
            Column(name="part_number", title="Part"),
            Column(name="inforom", title="InfoROM"),
            Column(name="gsp_firmware", title="GSP firmware"),
            Column(name="compute_capability", title="Compute capability"),
            Column(name="driver_version", title="Driver"),
            Column(name="cuda_version", title="CUDA"),
            Column(name="virtualization", title="Virtualization"),
            UUID,
        ],
        Query(of_gpus("gpu_info", *names)),
        Query(of_gpus("gpu_board_info", *board)),
        Query(driver),
        Query(of_gpus("gpu_virtualization_info", "virtualization")),
    )


def _settings() -> Panel:
    def threshold(name: str) -> Query:
        return Query(by_gpu(f'gpuslice_gpu_temperature_threshold_celsius{{{ON_GPUS}, threshold="{name}"}}'))

    def limit(name: str) -> Query:
        return Query(by_gpu(f'gpuslice_gpu_power_limit_setting_watts{{{ON_GPUS}, limit="{name}"}}'))

    return listing(
        "Settings and limits",
        "Settings of each GPU, and its temperature and power limits. Unknown: not reported.",
        [
            NODE,
            INDEX,
            Column(name="Value #B", title="Performance state", unit="none"),
            Column(name="compute_mode", title="Compute mode"),
            Column(name="Value #D", title="Persistence", words=ON_OFF),
            Column(name="Value #E", title="Accounting", words=ON_OFF),
            Column(name="Value #F", title="ECC", words=ON_OFF),
            Column(name="Value #G", title="ECC after a reboot", words=ON_OFF),
            Column(name="Value #H", title="MIG after a reset", words=ON_OFF),
            Column(name="Value #I", title="Slows down at", unit="celsius"),
            Column(name="Value #J", title="Shuts down at", unit="celsius"),
            Column(name="Value #K", title="Memory maximum", unit="celsius"),
            Column(name="Value #L", title="Power limit", unit="watt"),
            Column(name="Value #M", title="Default", unit="watt"),
            Column(name="Value #N", title="Minimum", unit="watt"),
            Column(name="Value #O", title="Maximum", unit="watt"),
            Column(name="Value #P", title="Calls not supported", unit="none"),
            UUID,
        ],
        Query(_WHOLE),
        Query(of_gpus("gpu_performance_state")),
        Query(of_gpus("gpu_compute_mode_info", "compute_mode")),
        Query(of_gpus("gpu_persistence_mode")),
        Query(of_gpus("gpu_accounting_mode")),
        Query(of_gpus("gpu_ecc_enabled")),
        Query(of_gpus("gpu_ecc_enabled_pending")),
        Query(of_gpus("gpu_mig_mode_pending")),
        threshold("slowdown"),
        threshold("shutdown"),
        threshold("memory"),
        Query(of_gpus("gpu_power_limit_watts")),
        limit("default"),
        limit("min"),
        limit("max"),
        Query(of_gpus("nvml_unsupported")),
    )


def cuts() -> tuple[Panel, ...]:
    """Return the row of MIG devices and partitions."""
    engines = ("copy", "encoder", "decoder", "jpeg", "ofa")

    def query(name: str, more: str = "") -> Query:
        return Query(by_mig(f"gpuslice_mig_{name}{{{ON_GPUS}{more}}}"))

    return (
        listing(
            "MIG devices and partitions",
            "Resources of each MIG device, or partition of an AMD GPU. Memory is unknown if compute "
            "instances share it; engines are for NVIDIA only. SMs are compute units on AMD GPUs.",
            [
                NODE,
                INDEX,
                Column(name="profile", title="Profile"),
                Column(name="gi", title="GI"),
                Column(name="ci", title="CI"),
                Column(name="Value #B", title="Compute slices", unit="none"),
                Column(name="Value #C", title="Memory slices", unit="none"),
                Column(name="Value #D", title="SMs", unit="none"),
                Column(name="Value #E", title="Memory used", unit="bytes"),
                Column(name="Value #F", title="Memory", unit="bytes"),
                *(
                    Column(name=f"Value #{chr(ord('G') + place)}", title=engine.capitalize(), unit="none")
                    for place, engine in enumerate(engines)
                ),
                Column(name="mig_uuid", title="MIG device"),
            ],
            query("info"),
            query("compute_slices"),
            query("memory_slices"),
            query("multiprocessors"),
            query("memory_used_bytes"),
            query("memory_total_bytes"),
            *(query("engines", f', engine="{engine}"') for engine in engines),
            nothing=Nothing("profile", f"gpuslice_gpu_up{{{ON_GPUS}}}"),
        ),
    )


def virtual() -> tuple[Panel, ...]:
    """Return the row of vGPUs: those of a host, and the license of a guest."""
    return (_vgpus(), *_vgpu_use(), _licenses())


def _vgpus() -> Panel:
    def query(name: str) -> Query:
        return Query(by_gpu(f"gpuslice_vgpu_{name}{{{ON_GPUS}}}", "vgpu_uuid"))

    return listing(
        "vGPUs of hosts",
        "The vGPUs that run on GPUs of a host, and the pods that hold them. Licensed: unknown until the "
        "guest's driver has requested a license.",
        [
            NODE,
            INDEX,
            Column(name="type", title="Type"),
            Column(name="vm_id", title="Virtual machine"),
            Column(name="namespace", title="Namespace", empty="-"),
            Column(name="pod", title="Pod", empty="-"),
            Column(name="Value #B", title="Memory used", unit="bytes"),
            Column(name="Value #C", title="Memory", unit="bytes"),
            Column(name="Value #D", title="Utilization", unit="percentunit"),
            Column(name="Value #E", title="Licensed", words=YES_IS_GOOD),
            Column(name="mdev_uuid", title="Mediated device"),
            Column(name="vgpu_uuid", title="vGPU"),
        ],
        Query(by_gpu(_held_vgpus(), "vgpu_uuid", "type", "vm_id", "namespace", "pod", "mdev_uuid")),
        query("memory_used_bytes"),
        query("memory_total_bytes"),
        query("utilization_ratio"),
        query("licensed"),
        nothing=Nothing("type", f'{_VIRTUALIZATION}, virtualization!="vgpu_host"}}'),
    )


def _held_vgpus() -> str:
    """Return the vGPUs, with the namespace and pod that hold them or none."""
    info = f"gpuslice_vgpu_info{{{ON_GPUS}}}"
    # The exporter's own pod holds none: its name is a label of the target, in place of our empty one.
    exporters = f"gpuslice_node_info{{{ON_NODES}}}"
    own = f"{TARGET}, namespace, pod, exported_namespace, exported_pod"
    same = f"on ({own}) max by ({own}) ({exporters})"
    unheld = f"{info} and {same}"
    for label in ("namespace", "pod"):
        unheld = f'label_replace({unheld}, "{label}", "", "", "")'
    held = unclashed(f"({info} unless {same})", "namespace", "pod")
    return f"{held} or {unheld}"


def _vgpu_use() -> tuple[Panel, ...]:
    names = f"max by ({DEVICE}, vgpu_uuid, vm_id) (gpuslice_vgpu_info{{{ON_GPUS}}})"

    def query(name: str) -> Query:
        rows = f"gpuslice_vgpu_{name}{{{ON_GPUS}}}"
        named = f"{rows} * on ({DEVICE}, vgpu_uuid) group_left (vm_id) {names}"
        return Query(by_gpu(named, "vgpu_uuid", "vm_id"), f"{GPU} · {{{{vm_id}}}}")

    return (
        timeline(
            "Utilization by vGPU",
            "percentunit",
            "Share of the physical GPU's time in which it computed for a vGPU. Unknown inside MIG.",
            query("utilization_ratio"),
            stacked=True,
            top=1,
            span=8,
        ),
        timeline(
            "Memory by vGPU",
            "bytes",
            "Memory that the guest of each vGPU uses.",
            query("memory_used_bytes"),
            stacked=True,
            span=8,
        ),
        timeline("vGPUs", "none", "vGPUs that run on each GPU of a host.", of_gpu("gpu_vgpus"), span=8),
    )


def _licenses() -> Panel:
    return listing(
        "Licenses of guests",
        "The license of a guest's vGPU. Without one its driver slows it down.",
        [
            NODE,
            INDEX,
            Column(name="license_product", title="Product"),
            Column(name="license_state", title="State"),
            Column(name="Value #B", title="Licensed", words=YES_IS_GOOD),
            Column(name="Value #C", title="Expires", unit="dateTimeFromNow", empty="never"),
            UUID,
        ],
        Query(of_gpus("gpu_vgpu_license_info", "license_product", "license_state")),
        Query(of_gpus("gpu_vgpu_licensed")),
        Query(by_gpu(f"gpuslice_gpu_vgpu_license_expiry_timestamp_seconds{{{ON_GPUS}}} * 1000")),
        height=6,
        nothing=Nothing("license_product", f'{_VIRTUALIZATION}, virtualization!="vgpu_guest"}}'),
    )
