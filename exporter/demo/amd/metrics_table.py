"""The binary table ``gpu_metrics`` of a fake AMD GPU, laid out field by field.

The structs are those of the kernel's kgd_pp_interface.h. Fields without a value are all ones.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

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
