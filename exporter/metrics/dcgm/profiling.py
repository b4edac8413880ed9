"""Fields of profiling metrics, on GPUs and GPU instances that have them."""

from exporter.metrics.dcgm.row import DCGM_ROWS, READING, DcgmRow
from exporter.metrics.family import Family, entry
from exporter.model.readings import Activity, Cycles, Traffic

_ACTIVE: tuple[tuple[str, Activity, str], ...] = (
    (
        "GR_ENGINE_ACTIVE",
        "graphics_engine",
        "Share of time in which the graphics or compute engine was active.",
    ),
    ("SM_ACTIVE", "sm", "Share of cycles in which an SM had at least one warp assigned."),
    ("SM_OCCUPANCY", "sm_occupancy", "Warps resident on the SMs, as a share of the maximum."),
    ("PIPE_TENSOR_ACTIVE", "tensor", "Share of cycles in which the tensor pipe was active."),
    ("DRAM_ACTIVE", "dram", "Share of cycles in which device memory sent or received data."),
    ("PIPE_FP64_ACTIVE", "fp64", "Share of cycles in which the FP64 pipe was active."),
    ("PIPE_FP32_ACTIVE", "fp32", "Share of cycles in which the FP32 pipe was active."),
    ("PIPE_FP16_ACTIVE", "fp16", "Share of cycles in which the FP16 pipe was active."),
    ("PIPE_TENSOR_IMMA_ACTIVE", "tensor_imma", "Share of cycles in which the IMMA tensor pipe was active."),
    ("PIPE_TENSOR_HMMA_ACTIVE", "tensor_hmma", "Share of cycles in which the HMMA tensor pipe was active."),
    ("PIPE_TENSOR_DFMA_ACTIVE", "tensor_dfma", "Share of cycles in which the DFMA tensor pipe was active."),
    ("PIPE_INT_ACTIVE", "integer", "Share of cycles in which the integer pipe was active."),
)
_RATES: tuple[tuple[str, Traffic, str], ...] = (
    ("PCIE_TX_BYTES", "pcie_transmit", "PCIe transmit rate including headers (bytes/s)."),
    ("PCIE_RX_BYTES", "pcie_receive", "PCIe receive rate including headers (bytes/s)."),
    ("NVLINK_TX_BYTES", "nvlink_transmit", "NVLink transmit rate (bytes/s)."),
    ("NVLINK_RX_BYTES", "nvlink_receive", "NVLink receive rate (bytes/s)."),
)
_CYCLES: tuple[tuple[str, Cycles, str], ...] = (
    ("SM_CYCLES_ELAPSED", "sm_elapsed", "SM cycles elapsed"),
    ("SM_CYCLES_ACTIVE", "sm_active", "SM cycles with at least one warp assigned"),
    ("MMA_CYCLES_ACTIVE", "mma", "Tensor pipe active cycles"),
    ("DMMA_CYCLES_ACTIVE", "dmma", "DMMA tensor pipe active cycles"),
    ("HMMA_CYCLES_ACTIVE", "hmma", "HMMA tensor pipe active cycles"),
    ("IMMA_CYCLES_ACTIVE", "imma", "IMMA tensor pipe active cycles"),
    ("DFMA_CYCLES_ACTIVE", "dfma", "DFMA tensor pipe active cycles"),
    ("INT_CYCLES_ACTIVE", "integer", "Integer pipe active cycles"),
    ("FP64_CYCLES_ACTIVE", "fp64", "FP64 pipe active cycles"),
    ("FP32_CYCLES_ACTIVE", "fp32", "FP32 pipe active cycles"),
    ("FP16_CYCLES_ACTIVE", "fp16", "FP16 pipe active cycles"),
)
_BYTES: tuple[tuple[str, Traffic, str], ...] = (
    ("PCIE_TX_BYTES", "pcie_transmit", "Bytes transmitted over PCIe"),
    ("PCIE_RX_BYTES", "pcie_receive", "Bytes received over PCIe"),
)

_ENTITY = DCGM_ROWS.grouped("profiling")
_PROFILE = READING.of(lambda gpu: gpu.profiling, "profiling")


PROFILING: tuple[Family[DcgmRow], ...] = (
    *(_ENTITY.gauge(f"PROF_{name}", text, entry("active", activity)) for name, activity, text in _ACTIVE),
    *(_PROFILE.gauge(f"PROF_{name}", text, entry("rates", traffic)) for name, traffic, text in _RATES),
    *(
        _PROFILE.counter(f"PROF_{name}_TOTAL", f"{text} since the node booted.", entry("cycles", kind))
        for name, kind, text in _CYCLES
    ),
    *(
        _PROFILE.counter(
            f"PROF_{name}_TOTAL", f"{text} since the node booted.", entry("bytes_total", traffic)
        )
        for name, traffic, text in _BYTES
    ),
)
