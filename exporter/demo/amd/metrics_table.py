"""The binary table of metrics of a fake AMD GPU, laid out field by field as the kernel's structs are.

What a board does not know stays all ones.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

_U8, _U16, _U32, _U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
_Fields = Sequence[tuple[str, Any]]

_HEADER: _Fields = (("structure_size", _U16), ("format_revision", _U8), ("content_revision", _U8))
_BEFORE_MI300: _Fields = (
    *_HEADER,
    ("temperature_edge", _U16),
    ("temperature_hotspot", _U16),
    ("temperature_mem", _U16),
    ("temperature_vr", _U16 * 3),
    ("average_gfx_activity", _U16),
    ("average_umc_activity", _U16),
    ("average_mm_activity", _U16),
    ("socket_power", _U16),
    ("energy_accumulator", _U64),
    ("system_clock_counter", _U64),
    ("average_frequencies", _U16 * 7),
    ("current_clocks", _U16 * 7),
    ("throttle_status", _U32),
    ("current_fan_speed", _U16),
    ("pcie_link_width", _U16),
    ("pcie_link_speed", _U16),
    ("padding", _U16),
    ("activity_acc", _U32 * 2),
    ("temperature_hbm", _U16 * 4),
    ("firmware_timestamp", _U64),
    ("voltages", _U16 * 3),
    ("padding1", _U16),
    ("indep_throttle_status", _U64),
)
_MI300_HEAD: _Fields = (
    *_HEADER,
    ("temperature_hotspot", _U16),
    ("temperature_mem", _U16),
    ("temperature_vrsoc", _U16),
    ("socket_power", _U16),
    ("average_gfx_activity", _U16),
    ("average_umc_activity", _U16),
)
_MI300_COUNTERS: _Fields = (
    ("energy_accumulator", _U64),
    ("system_clock_counter", _U64),
    ("accumulation_counter", _U32),
    ("residencies", _U32 * 5),
    ("gfxclk_lock_status", _U32),
    ("pcie_link_width", _U16),
    ("pcie_link_speed", _U16),
    ("xgmi_link_width", _U16),
    ("xgmi_link_speed", _U16),
    ("activity_acc", _U32 * 2),
    ("pcie_bandwidth_acc", _U64),
    ("pcie_bandwidth_inst", _U64),
    ("pcie_l0_to_recov_count_acc", _U64),
    ("pcie_replay_count_acc", _U64),
    ("pcie_replay_rover_count_acc", _U64),
    ("pcie_nak_sent_count_acc", _U32),
    ("pcie_nak_rcvd_count_acc", _U32),
    ("xgmi_data_acc", _U64 * 16),
)
_MI300_CLOCKS: _Fields = (
    ("firmware_timestamp", _U64),
    ("current_gfxclk", _U16 * 8),
    ("current_socclk", _U16 * 4),
    ("current_vclk0", _U16 * 4),
    ("current_dclk0", _U16 * 4),
    ("current_uclk", _U16),
    ("num_partition", _U16),
)
_LINKS: _Fields = (("xgmi_link_status", _U16 * 8), ("padding", _U16))


def _struct(fields: _Fields) -> Any:
    return type("Table", (ctypes.LittleEndianStructure,), {"_fields_": fields})


def _partition(jpeg_engines: int, counters: int) -> Any:
    """Lay out what is told of one partition, with so many counters of 64 bits for each of its dies."""
    busy = (("gfx_busy_inst", _U32 * 8), ("jpeg_busy", _U16 * jpeg_engines), ("vcn_busy", _U16 * 4))
    return _struct((*busy, ("accumulated", _U64 * 8 * counters)))


_END: _Fields = (("pcie_lc_perf_other_end_recovery", _U32),)
TABLES: Mapping[str, Any] = {
    "1.3": _struct(_BEFORE_MI300),
    "1.6": _struct(
        (*_MI300_HEAD, *_MI300_COUNTERS, *_MI300_CLOCKS, ("xcp_stats", _partition(32, 1) * 8), *_END)
    ),
    "1.8": _struct(
        (
            *_MI300_HEAD,
            ("mem_max_bandwidth", _U64),
            *_MI300_COUNTERS,
            *_LINKS,
            *_MI300_CLOCKS,
            ("xcp_stats", _partition(40, 5) * 8),
            *_END,
        )
    ),
}


def table(version: str, values: Mapping[str, int], partitions: Sequence[Sequence[int]] = ()) -> bytes:
    """Return a table of these fields; ``partitions`` is the load of each die of each partition in percent."""
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
