"""The files of a fake node's AMD GPUs: cards, partitions, and KFD's nodes and processes.

The binary table ``gpu_metrics`` is laid out field by field: its structs are those of the kernel's
kgd_pp_interface.h. Fields without a value are all ones.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.demo.machine import COPY_RATIO, GpuState
from exporter.demo.scenario.amd_gpus import MOST_PARTITIONS, AmdGpu
from exporter.demo.scenario.derive import make_hex
from exporter.demo.tree import Written

HWMON = "hwmon/hwmon4"
JUNCTION_HOTTER, MEMORY_HOTTER = 9, 5
ENERGY_UNITS_PER_MILLIJOULE = 65.536
FULL_PWM = 255
SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
VBIOS = "113-D65210-X10"
DRIVER_VERSION = "6.10.5"
FIRST_RENDER_MINOR = 128
SIMDS_PER_UNIT = 4
FRAME_BUFFER = 1

Files = Mapping[str, str | bytes]

_TYPES = {"u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
_HEADER = "u16 structure_size; u8 format_revision content_revision;"
_BEFORE_MI300 = f"""{_HEADER}
    u16 temperature_edge temperature_hotspot temperature_mem temperature_vr[3];
    u16 average_gfx_activity average_umc_activity average_mm_activity socket_power;
    u64 energy_accumulator system_clock_counter; u16 average_frequencies[7] current_clocks[7];
    u32 throttle_status; u16 current_fan_speed pcie_link_width pcie_link_speed padding;
    u32 activity_acc[2]; u16 temperature_hbm[4]; u64 firmware_timestamp; u16 voltages[3] padding1;
    u64 indep_throttle_status"""
_MI300_HEAD = f"""{_HEADER}
    u16 temperature_hotspot temperature_mem temperature_vrsoc socket_power;
    u16 average_gfx_activity average_umc_activity;"""
_MI300_COUNTERS = """u64 energy_accumulator system_clock_counter; u32 accumulation_counter residencies[5];
    u32 gfxclk_lock_status; u16 pcie_link_width pcie_link_speed xgmi_link_width xgmi_link_speed;
    u32 activity_acc[2]; u64 pcie_bandwidth_acc pcie_bandwidth_inst pcie_l0_to_recov_count_acc;
    u64 pcie_replay_count_acc pcie_replay_rover_count_acc;
    u32 pcie_nak_sent_count_acc pcie_nak_rcvd_count_acc; u64 xgmi_data_acc[16];"""
_MI300_CLOCKS = """u64 firmware_timestamp; u16 current_gfxclk[8] current_socclk[4] current_vclk0[4];
    u16 current_dclk0[4] current_uclk num_partition;"""
_LINKS = "u16 xgmi_link_status[8] padding;"
_PARTITION = "u32 gfx_busy_inst[8]; u16 jpeg_busy[{jpeg_engines}] vcn_busy[4]; u64 accumulated[{counters}];"
_END = "xcp xcp_stats[8]; u32 pcie_lc_perf_other_end_recovery"


def _struct(layout: str, **types: Any) -> Any:
    """Return a ctypes struct of declarations such as ``u16 name other[3];``."""
    fields = []
    for declaration in filter(None, map(str.split, layout.split(";"))):
        kind, *names = declaration
        for name, _, length in (name.rstrip("]").partition("[") for name in names):
            base = (_TYPES | types)[kind]
            fields.append((name, base * int(length) if length else base))
    return type("Table", (ctypes.LittleEndianStructure,), {"_fields_": fields})


TABLES: Mapping[str, Any] = {
    "1.3": _struct(_BEFORE_MI300),
    "1.6": _struct(
        _MI300_HEAD + _MI300_COUNTERS + _MI300_CLOCKS + _END,
        xcp=_struct(_PARTITION.format(jpeg_engines=32, counters=8)),
    ),
    "1.8": _struct(
        _MI300_HEAD + "u64 mem_max_bandwidth;" + _MI300_COUNTERS + _LINKS + _MI300_CLOCKS + _END,
        xcp=_struct(_PARTITION.format(jpeg_engines=40, counters=5 * 8)),
    ),
}


def table(version: str, values: Mapping[str, int], partitions: Sequence[Sequence[int]] = ()) -> bytes:
    """Return a table with these values; ``partitions`` is the load of each partition's dies in percent."""
    kind = TABLES[version]
    written = kind.from_buffer_copy(b"\xff" * ctypes.sizeof(kind))
    written.structure_size = ctypes.sizeof(kind)
    written.format_revision, written.content_revision = map(int, version.split("."))
    names = {field[0] for field in kind._fields_}
    for name, value in values.items():
        if name in names:
            setattr(written, name, value)
    if "num_partition" in names:
        written.num_partition = len(partitions)
        for place, dies in enumerate(partitions):
            for die, percent in enumerate(dies):
                written.xcp_stats[place].gfx_busy_inst[die] = percent
    return bytes(written)


def static_files(amd: AmdGpu) -> Files:
    """Return the files that never change while the driver is loaded."""
    speed = SPEEDS[amd.pcie_generation]
    memory, power = str(amd.memory_total), str(amd.power_max_mw * 1000)
    files = {
        "vendor": "0x1002",
        "device": amd.device,
        "uevent": f"DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME={amd.address}",
        "unique_id": amd.unique_id,
        "product_name": amd.model,
        "serial_number": amd.serial,
        "vbios_version": VBIOS,
        "numa_node": "0",
        "local_cpulist": "0-31",
        "current_link_speed": speed,
        "max_link_speed": speed,
        "current_link_width": "16",
        "max_link_width": "16",
        "power/runtime_status": "active",
        "mem_info_vram_total": memory,
        "mem_info_vis_vram_total": memory,
        "ras/umc_err_count": f"ue: {amd.uncorrected_errors}\nce: {amd.corrected_errors}",
        "ras/gfx_err_count": "ue: 0\nce: 0",
        f"{HWMON}/name": "amdgpu",
        f"{HWMON}/power1_cap": power,
        f"{HWMON}/power1_cap_default": power,
        f"{HWMON}/power1_cap_min": "0",
        f"{HWMON}/power1_cap_max": power,
        f"{HWMON}/temp2_label": "junction",
        f"{HWMON}/temp3_label": "mem",
        f"{HWMON}/freq1_label": "sclk",
        f"{HWMON}/freq2_label": "mclk",
    }
    if not amd.mode:
        files |= {f"{HWMON}/temp1_label": "edge", "pcie_replay_count": "0"}
    else:
        files |= {"current_compute_partition": amd.mode, "current_memory_partition": amd.memory_mode}
    return {name: f"{content}\n" for name, content in files.items()}


def moving_files(amd: AmdGpu, state: GpuState) -> Files:
    """Return the files that change with the load. From MI300 on, power is current instead of averaged."""
    busy, degrees = state.utilization, state.temperature
    sclk = round(amd.sclk_idle + (amd.sclk_max - amd.sclk_idle) * busy / 100)
    power = "power1_input" if amd.mode else "power1_average"
    files = {
        "gpu_busy_percent": busy,
        "mem_busy_percent": round(busy * COPY_RATIO),
        "mem_info_vram_used": state.used,
        "mem_info_vis_vram_used": state.used,
        f"{HWMON}/{power}": state.power_mw * 1000,
        f"{HWMON}/temp2_input": (degrees + JUNCTION_HOTTER) * 1000,
        f"{HWMON}/temp3_input": (degrees + MEMORY_HOTTER) * 1000,
        f"{HWMON}/freq1_input": sclk * 1_000_000,
        f"{HWMON}/freq2_input": amd.mclk * 1_000_000,
    }
    if not amd.mode:
        files[f"{HWMON}/temp1_input"] = degrees * 1000
    if amd.fan is not None:
        files[f"{HWMON}/pwm1"] = round(amd.fan * FULL_PWM / 100)
    metrics = {"gpu_metrics": _gpu_metrics(amd, state)} if amd.metrics else {}
    return {**{name: f"{number}\n" for name, number in files.items()}, **metrics}


def _gpu_metrics(amd: AmdGpu, state: GpuState) -> bytes:
    # All dies of a partition are equally busy.
    busy = [sum(process.sm for process in part.processes) for part in state.instances] or [state.utilization]
    dies = amd.dies // amd.partitions
    values = {
        "temperature_hotspot": state.temperature + JUNCTION_HOTTER,
        "temperature_mem": state.temperature + MEMORY_HOTTER,
        "socket_power": state.power_mw // 1000,
        "average_gfx_activity": state.utilization,
        "average_umc_activity": round(state.utilization * COPY_RATIO),
        "energy_accumulator": int(state.totals["energy"] * ENERGY_UNITS_PER_MILLIJOULE),
        "pcie_replay_count_acc": 0,
    }
    return table(amd.metrics, values, [[min(100, percent)] * dies for percent in busy])


class AmdTree:
    """Writes the files of AMD GPUs below a sysfs; nothing if there are none."""

    def __init__(self, amd: Sequence[AmdGpu], sys_root: Path) -> None:
        self._amd = tuple(amd)
        self._sys = sys_root
        self._kfd = sys_root / "class/kfd/kfd"
        self._written = Written()

    def create(self) -> None:
        """Create the files that never change."""
        if not self._amd:
            return
        self._write(self._sys / "module/amdgpu/version", DRIVER_VERSION)
        # The console of a server has a card of its own.
        self._write(self._sys / "class/drm/card0/device/vendor", "0x1a03")
        self._write(self._kfd / "topology/generation_id", "2")
        self._write(self._kfd / "topology/nodes/0/gpu_id", "0")
        (self._kfd / "proc").mkdir(parents=True, exist_ok=True)
        for index, amd in enumerate(self._amd):
            self._written.write_all(self._device(index), static_files(amd))
            (self._device(index) / f"drm/renderD{_render_minor(index, 0)}").mkdir(parents=True)
            # Partitions have devices for the maximum number of them.
            for place in range(1, MOST_PARTITIONS if amd.mode else 1):
                platform = f"devices/platform/amdgpu_xcp_{index * (MOST_PARTITIONS - 1) + place - 1}"
                render = self._sys / platform / f"drm/renderD{_render_minor(index, place)}"
                render.mkdir(parents=True)
            self._create_nodes(amd, index)

    def step(self, states: Sequence[GpuState]) -> None:
        """Bring the files to the current states."""
        for index, (amd, state) in enumerate(zip(self._amd, states, strict=True)):
            self._written.write_all(self._device(index), moving_files(amd, state))
        if self._amd:
            self._step_processes(states)

    def _device(self, index: int) -> Path:
        return self._sys / f"class/drm/card{index * MOST_PARTITIONS + 1}/device"

    def _create_nodes(self, amd: AmdGpu, index: int) -> None:
        for place in range(amd.partitions):
            node = self._kfd / f"topology/nodes/{index * MOST_PARTITIONS + place + 1}"
            self._write(node / "gpu_id", str(gpu_id(amd, place)))
            self._write(node / "properties", _lines(_properties(amd, index, place)))
            bank = {"heap_type": FRAME_BUFFER, "size_in_bytes": amd.memory_total // amd.partitions}
            self._write(node / "mem_banks/0/properties", _lines(bank))

    def _step_processes(self, states: Sequence[GpuState]) -> None:
        """Write the files of processes: each has opened all nodes, and uses one."""
        folder = self._kfd / "proc"
        pids = set()
        ids = [gpu_id(amd, place) for amd in self._amd for place in range(amd.partitions)]
        for amd, state in zip(self._amd, states, strict=True):
            for process in state.processes:
                own = gpu_id(amd, process.instance.gi if process.instance else 0)
                units = round(process.sm * (amd.compute_units // amd.partitions) / 100)
                files = {"queues/0/gpuid": str(own)}
                for node in ids:
                    files[f"vram_{node}"] = str(process.memory if node == own else 0)
                    files[f"stats_{node}/cu_occupancy"] = str(units if node == own else 0)
                self._written.write_all(folder / str(process.pid), files)
                pids.add(process.pid)
        for path in list(folder.iterdir()):
            if int(path.name) not in pids:
                self._written.remove_folder(path)

    def _write(self, path: Path, line: str) -> None:
        self._written.write(path, f"{line}\n")


def gpu_id(amd: AmdGpu, partition: int) -> int:
    """Return KFD's id of a device, which has 16 bits and no order."""
    return int(make_hex(amd.unique_id, partition)[:4], 16) or 1


def _render_minor(index: int, partition: int) -> int:
    return FIRST_RENDER_MINOR + index * MOST_PARTITIONS + partition


def _properties(amd: AmdGpu, index: int, partition: int) -> Mapping[str, int]:
    domain, bus, rest = amd.address.split(":")
    device, function = rest.split(".")
    location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
    major, minor, step = amd.architecture[3:-2], amd.architecture[-2], amd.architecture[-1]
    return {
        "cpu_cores_count": 0,
        "simd_count": amd.compute_units // amd.partitions * SIMDS_PER_UNIT,
        "mem_banks_count": 1,
        "simd_per_cu": SIMDS_PER_UNIT,
        "gfx_target_version": int(major) * 10000 + int(minor, 16) * 100 + int(step, 16),
        "vendor_id": 0x1002,
        "device_id": int(amd.device, 16),
        "location_id": location | partition,
        "domain": int(domain, 16),
        "drm_render_minor": _render_minor(index, partition),
        "num_xcc": amd.dies // amd.partitions,
        "unique_id": int(amd.unique_id, 16),
    }


def _lines(values: Mapping[str, int]) -> str:
    return "\n".join(f"{name} {value}" for name, value in values.items())
