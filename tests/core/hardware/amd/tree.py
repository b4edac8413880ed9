"""A sysfs with AMD GPUs, written by hand: the values are those that the kernel's documentation shows."""

from pathlib import Path
from typing import Any

from exporter.amd import AmdOptions, AmdSource
from exporter.model import GpuReading, HardwareReading
from exporter.workloads.pid_namespace import counts_machine_pids
from tests.core.hardware.making import NEVER_SECONDS

GIB = 1 << 30
UNIQUE_ID = "4f3a9d7be0c15826"
UUID = f"GPU-{UNIQUE_ID}"
ADDRESS = "0000:19:00.0"
GPU_ID = 51140

BOARD = {
    "vendor": "0x1002",
    "device": "0x740f",
    "uevent": f"DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_ID=1002:740F\nPCI_SLOT_NAME={ADDRESS}",
    "unique_id": UNIQUE_ID,
    "product_name": "AMD INSTINCT MI210",
    "serial_number": "692214000581",
    "vbios_version": "113-D67301-059",
    "numa_node": "1",
    "local_cpulist": "16-31,48-63",
    "gpu_busy_percent": "87",
    "mem_busy_percent": "41",
    "mem_info_vram_total": str(64 * GIB),
    "mem_info_vram_used": str(20 * GIB),
    "mem_info_vis_vram_total": str(64 * GIB),
    "mem_info_vis_vram_used": str(19 * GIB),
    "pcie_replay_count": "3",
    "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
    "ras/umc_err_count": "ue: 1\nce: 4",
    "ras/gfx_err_count": "ue: 0\nce: 2",
    "ras/features": "feature mask: 0x7",
    "hwmon/hwmon6/name": "amdgpu",
    "hwmon/hwmon6/power1_average": "243000000",
    "hwmon/hwmon6/power1_cap": "280000000",
    "hwmon/hwmon6/power1_cap_default": "300000000",
    "hwmon/hwmon6/power1_cap_min": "0",
    "hwmon/hwmon6/power1_cap_max": "300000000",
    "hwmon/hwmon6/temp1_label": "edge",
    "hwmon/hwmon6/temp1_input": "51000",
    "hwmon/hwmon6/temp2_label": "junction",
    "hwmon/hwmon6/temp2_input": "63000",
    "hwmon/hwmon6/temp3_label": "mem",
    "hwmon/hwmon6/temp3_input": "58000",
    "hwmon/hwmon6/freq1_label": "sclk",
    "hwmon/hwmon6/freq1_input": "1700000000",
    "hwmon/hwmon6/freq2_label": "mclk",
    "hwmon/hwmon6/freq2_input": "1600000000",
    "hwmon/hwmon6/fan1_input": "1200",
    "hwmon/hwmon6/fan1_max": "4800",
}


class Tree:
    """A sysfs and a process table below one folder."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.kfd = self.sys / "class/kfd/kfd"
        self.proc.mkdir(parents=True)
        self._sources: list[AmdSource] = []

    def write(self, path: Path | str, content: str | bytes) -> Path:
        """Write a file of sysfs; its path is given from there on."""
        file = self.sys / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
        return file

    def card(self, number: int = 0, render: int = 128, **changes: str | bytes | None) -> Path:
        """Write a card; of ``changes`` (slashes are written ``__``), those that are None are left out."""
        named = {name.replace("__", "/"): content for name, content in changes.items()}
        for name, content in (BOARD | named).items():
            if content is not None:
                self.write(f"class/drm/card{number}/device/{name}", content)
        (self.device(number) / f"drm/renderD{render}").mkdir(parents=True)
        return self.device(number)

    def second(self, **changes: str | bytes | None) -> Path:
        """Write another card, with its own address and id."""
        event = "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:43:00.0"
        return self.card(1, 129, **{"uevent": event, "unique_id": "b" * 16} | changes)

    def device(self, number: int = 0) -> Path:
        """Return the folder of a card's device."""
        return self.sys / f"class/drm/card{number}/device"

    def node(self, number: int = 1, gpu_id: int = GPU_ID, memory: int = 64 * GIB, **changes: int) -> None:
        """Write a node of KFD: by default the one of the first card, with 104 compute units."""
        values = {
            "simd_count": 416,
            "simd_per_cu": 4,
            "gfx_target_version": 90010,
            "location_id": 0x1900,
            "domain": 0,
            "drm_render_minor": 128,
        } | changes
        folder = self.kfd / f"topology/nodes/{number}"
        self.write(folder / "gpu_id", str(gpu_id))
        self.write(folder / "properties", "\n".join(f"{name} {value}" for name, value in values.items()))
        self.write(folder / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {memory}\nflags 0")
        (self.kfd / "proc").mkdir(exist_ok=True)

    def process(
        self, pid: int, vram: int, units: int | None = None, gpu_id: int = GPU_ID, within: str = ""
    ) -> Path:
        """Write a process of KFD; ``within`` is a further context of it."""
        folder = self.kfd / f"proc/{pid}" / within
        self.write(folder / f"vram_{gpu_id}", str(vram))
        if units is not None:
            self.write(folder / f"stats_{gpu_id}/cu_occupancy", str(units))
        return folder

    def partitions(self, count: int = 8, memory_mode: str = "NPS1", shift: int = 0) -> Path:
        """Write an MI300X that is cut into so many partitions, of those devices that it has for eight.

        Their numbers stand in their locations from the bit ``shift`` on.
        """
        modes = {1: "SPX", 2: "DPX", 4: "QPX", 8: "CPX"}
        device = self.card(
            current_compute_partition=modes[count],
            current_memory_partition=memory_mode,
            ras__umc_err_count=None,
        )
        for place in range(count):
            self.node(
                place + 1,
                GPU_ID + place,
                192 * GIB // count,
                simd_count=1216 // count,
                gfx_target_version=90402,
                location_id=0x1900 | place << shift,
                drm_render_minor=128 + place,
                unique_id=0xE3A8A1B2C3D4E5F6,
            )
        for place in range(7):
            (self.sys / f"devices/platform/amdgpu_xcp_{place + 21}/drm/renderD{129 + place}").mkdir(
                parents=True
            )
        return device

    def source(self, boot: float | None = 77.5, **options: Any) -> AmdSource:
        """Return a source that reads this tree."""
        parts = {
            "sys_root": self.sys,
            "machine_pids": lambda: counts_machine_pids(self.proc),
            "boot_clock": lambda: boot,
            "call_timeout": NEVER_SECONDS,
            "card_budget": NEVER_SECONDS,
        }
        self._sources.append(AmdSource(AmdOptions(**(parts | options))))
        return self._sources[-1]

    async def close(self) -> None:
        """Close all sources."""
        while self._sources:
            await self._sources.pop().close()

    async def read(self) -> HardwareReading:
        """Sweep once."""
        try:
            return await self.source().read()
        finally:
            await self._sources.pop().close()

    async def gpu(self) -> GpuReading:
        """Sweep once, and return the only GPU."""
        (gpu,) = (await self.read()).gpus
        return gpu


def unreadable(path: Path) -> None:
    """Return a file unreadable, also for root: replace it by a folder."""
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)
