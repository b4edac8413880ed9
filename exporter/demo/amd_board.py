"""The files of one AMD GPU's board, below its folder in sysfs."""

from collections.abc import Mapping

from exporter.demo import amd_metrics
from exporter.demo.machine import GpuState
from exporter.demo.schema_amd import AmdGpu

HWMON = "hwmon/hwmon4"
# Some of the frame buffer's traffic per percent of activity; a rule of thumb that looks alive.
COPY_RATIO = 0.6
JUNCTION_HOTTER, MEMORY_HOTTER = 9, 5
ENERGY_UNITS_PER_MILLIJOULE = 65.536
FULL_PWM = 255
SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
VBIOS = "113-D65210-X10"

Files = Mapping[str, str | bytes]


def static_files(amd: AmdGpu) -> Files:
    """Return what never changes while the driver is loaded."""
    speed = SPEEDS[amd.pcie_generation]
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
        "mem_info_vram_total": str(amd.memory_total),
        "mem_info_vis_vram_total": str(amd.memory_total),
        "ras/umc_err_count": f"ue: {amd.uncorrected_errors}\nce: {amd.corrected_errors}",
        "ras/gfx_err_count": "ue: 0\nce: 0",
        f"{HWMON}/name": "amdgpu",
        f"{HWMON}/power1_cap": str(amd.power_max_mw * 1000),
        f"{HWMON}/power1_cap_default": str(amd.power_max_mw * 1000),
        f"{HWMON}/power1_cap_min": "0",
        f"{HWMON}/power1_cap_max": str(amd.power_max_mw * 1000),
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
    """Return what moves with the load. From MI300 on, power is told as it is now instead of averaged."""
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
    table = {"gpu_metrics": _table(amd, state)} if amd.metrics else {}
    return {**{name: f"{number}\n" for name, number in files.items()}, **table}


def _table(amd: AmdGpu, state: GpuState) -> bytes:
    values = {
        "temperature_hotspot": state.temperature + JUNCTION_HOTTER,
        "temperature_mem": state.temperature + MEMORY_HOTTER,
        "socket_power": state.power_mw // 1000,
        "average_gfx_activity": state.utilization,
        "average_umc_activity": round(state.utilization * COPY_RATIO),
        "energy_accumulator": int(state.totals["energy"] * ENERGY_UNITS_PER_MILLIJOULE),
        "pcie_replay_count_acc": 0,
    }
    return amd_metrics.table(amd.metrics, values, _busy(amd, state))


def _busy(amd: AmdGpu, state: GpuState) -> list[list[int]]:
    """Return how busy the dies of each partition are; all dies of one are equally so."""
    dies = amd.dies // amd.partitions
    parts = [sum(process.sm for process in part.processes) for part in state.instances]
    return [[min(100, busy)] * dies for busy in parts or [state.utilization]]
