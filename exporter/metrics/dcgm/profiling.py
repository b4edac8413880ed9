"""Fields of the profiling meters, on the GPUs and instances that have one."""

from exporter.metrics import Family
from exporter.metrics.dcgm.row import DcgmRow, Value, active, counter, gauge, profile
from exporter.model.readings import Activity, Cycles, Traffic

_ACTIVE: tuple[tuple[str, Activity, str], ...] = (
    ("GR_ENGINE_ACTIVE", "graphics_engine", "Share of time in which the graphics engine was active."),
    ("SM_ACTIVE", "sm", "Share of cycles in which an SM had a warp assigned."),
    ("SM_OCCUPANCY", "sm_occupancy", "Warps on the SMs, as a share of the most that fit."),
    ("PIPE_TENSOR_ACTIVE", "tensor", "Share of cycles in which the tensor pipe was active."),
    ("DRAM_ACTIVE", "dram", "Share of cycles in which the memory sent or received."),
    ("PIPE_FP64_ACTIVE", "fp64", "Share of cycles in which the FP64 pipe was active."),
    ("PIPE_FP32_ACTIVE", "fp32", "Share of cycles in which the FP32 pipe was active."),
    ("PIPE_FP16_ACTIVE", "fp16", "Share of cycles in which the FP16 pipe was active."),
    ("PIPE_TENSOR_IMMA_ACTIVE", "tensor_imma", "Share of cycles in which the IMMA tensor pipe was active."),
    ("PIPE_TENSOR_HMMA_ACTIVE", "tensor_hmma", "Share of cycles in which the HMMA tensor pipe was active."),
    ("PIPE_TENSOR_DFMA_ACTIVE", "tensor_dfma", "Share of cycles in which the DFMA tensor pipe was active."),
    ("PIPE_INT_ACTIVE", "integer", "Share of cycles in which the integer pipe was active."),
)
_RATES: tuple[tuple[str, Traffic, str], ...] = (
    ("PCIE_TX_BYTES", "pcie_transmit", "Rate of transmission over PCIe, headers included (bytes/s)."),
    ("PCIE_RX_BYTES", "pcie_receive", "Rate of reception over PCIe, headers included (bytes/s)."),
    ("NVLINK_TX_BYTES", "nvlink_transmit", "Rate of transmission over NVLink (bytes/s)."),
    ("NVLINK_RX_BYTES", "nvlink_receive", "Rate of reception over NVLink (bytes/s)."),
)
_CYCLES: tuple[tuple[str, Cycles, str], ...] = (
    ("SM_CYCLES_ELAPSED", "sm_elapsed", "Cycles of the SMs since the node was started."),
    ("SM_CYCLES_ACTIVE", "sm_active", "Cycles in which an SM had a warp, since the node was started."),
    ("MMA_CYCLES_ACTIVE", "mma", "Cycles of the tensor pipe since the node was started."),
    ("DMMA_CYCLES_ACTIVE", "dmma", "Cycles of the DMMA tensor pipe since the node was started."),
    ("HMMA_CYCLES_ACTIVE", "hmma", "Cycles of the HMMA tensor pipe since the node was started."),
    ("IMMA_CYCLES_ACTIVE", "imma", "Cycles of the IMMA tensor pipe since the node was started."),
    ("DFMA_CYCLES_ACTIVE", "dfma", "Cycles of the DFMA tensor pipe since the node was started."),
    ("INT_CYCLES_ACTIVE", "integer", "Cycles of the integer pipe since the node was started."),
    ("FP64_CYCLES_ACTIVE", "fp64", "Cycles of the FP64 pipe since the node was started."),
    ("FP32_CYCLES_ACTIVE", "fp32", "Cycles of the FP32 pipe since the node was started."),
    ("FP16_CYCLES_ACTIVE", "fp16", "Cycles of the FP16 pipe since the node was started."),
)
_BYTES: tuple[tuple[str, Traffic, str], ...] = (
    ("PCIE_TX_BYTES", "pcie_transmit", "Bytes transmitted over PCIe since the node was started."),
    ("PCIE_RX_BYTES", "pcie_receive", "Bytes received over PCIe since the node was started."),
)


def _rate(traffic: Traffic) -> Value:
    return profile(lambda found: found.rates.get(traffic))


def _cycles(kind: Cycles) -> Value:
    return profile(lambda found: found.cycles.get(kind))


def _bytes(traffic: Traffic) -> Value:
    return profile(lambda found: found.bytes_total.get(traffic))


PROFILING: tuple[Family[DcgmRow], ...] = (
    *(gauge(f"PROF_{name}", "profiling", text, active(activity)) for name, activity, text in _ACTIVE),
    *(gauge(f"PROF_{name}", "profiling", text, _rate(traffic)) for name, traffic, text in _RATES),
    *(counter(f"PROF_{name}_TOTAL", "profiling", text, _cycles(kind)) for name, kind, text in _CYCLES),
    *(counter(f"PROF_{name}_TOTAL", "profiling", text, _bytes(traffic)) for name, traffic, text in _BYTES),
)
