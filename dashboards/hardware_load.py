"""Load of GPUs: utilization, profiling metrics, memory and video engines."""

from dashboards.board import Panel
from dashboards.hardware_series import MIG, both, of_gpu, of_mig
from dashboards.panels import Query, timeline
from dashboards.promql import GPU, ON_GPUS, by_gpu, by_mig

_METER = (
    "Share of the GPU or MIG device. From Hopper on (GPM); older GPUs with --dcgm-exporter-url. No line: "
    "not measured."
)


def load() -> tuple[Panel, ...]:
    """Return the row of readings that every GPU has."""
    return (
        timeline(
            "Utilization",
            "percentunit",
            "Share of time in which a kernel was running. Unknown for GPUs in MIG mode; by partition on "
            "AMD GPUs.",
            of_gpu("gpu_utilization_ratio"),
            of_mig("mig_utilization_ratio"),
            top=1,
        ),
        timeline(
            "Memory copy utilization",
            "percentunit",
            "Share of time in which memory was being read or written: traffic, not fill level. Unknown for "
            "GPUs in MIG mode.",
            of_gpu("gpu_memory_copy_utilization_ratio"),
            top=1,
        ),
        timeline(
            "Memory used",
            "bytes",
            "Memory in use, without memory reserved by the driver.",
            of_gpu("gpu_memory_used_bytes"),
        ),
        timeline(
            "Memory used by total",
            "percentunit",
            "Memory in use, of the total of the GPU or MIG device. Unknown for a MIG device if compute "
            "instances share it.",
            _gpu_share("memory_used_bytes", "memory_total_bytes"),
            _mig_share("memory_used_bytes", "memory_total_bytes"),
            top=1,
        ),
    )


def profiling() -> tuple[Panel, ...]:
    """Return the row of the profiling metrics."""
    return (
        _meter("Active multiprocessors", "sm_active", "Time with a warp on a multiprocessor, mean of all."),
        _meter("Occupancy", "sm_occupancy", "Resident warps, of the maximum."),
        _meter("Tensor cores", "tensor_active", "Cycles with an active tensor core."),
        _meter("Memory bandwidth", "dram_active", "Memory traffic, of the maximum."),
        _meter(
            "Double precision", "fp64_active", "Cycles with an active FP64 pipe, without tensor cores.", 8
        ),
        _meter(
            "Single precision", "fp32_active", "Cycles with an active FP32 pipe, without tensor cores.", 8
        ),
        _meter("Half precision", "fp16_active", "Cycles with an active FP16 pipe, without tensor cores.", 8),
        _meter("Integers", "integer_active", "Cycles with an active integer pipe.", 8),
        _meter("Compute or graphics", "graphics_engine_active", "Time with an active engine.", 8),
        _meter("Tensor cores, half precision", "tensor_hmma_active", "Cycles with half precision.", 8),
    )


def memory() -> tuple[Panel, ...]:
    """Return the row of memory in detail."""
    return (
        timeline(
            "Memory free",
            "bytes",
            "Free memory of GPUs and MIG devices.",
            *both("memory_free_bytes"),
        ),
        timeline(
            "Memory reserved by the driver",
            "bytes",
            "Memory that the driver reserves for itself. Not reported by older drivers.",
            *both("memory_reserved_bytes"),
        ),
        timeline(
            "Memory of GPUs and MIG devices",
            "bytes",
            "Total memory: used, free and reserved by the driver.",
            *both("memory_total_bytes"),
        ),
        timeline(
            "BAR1 used",
            "percentunit",
            "Use of BAR1, the window through which the host accesses GPU memory; mappings fail if it is "
            "full.",
            _gpu_share("bar1_used_bytes", "bar1_total_bytes"),
            _mig_share("bar1_used_bytes", "bar1_total_bytes"),
            top=1,
        ),
    )


def engines() -> tuple[Panel, ...]:
    """Return the row of the engines for video and images."""
    found = [
        timeline(
            title,
            "percentunit",
            f"Share of time in which the {what} was busy: from the driver, and from the profiling metric of "
            "the GPU or its MIG devices if there is one. Not for boards without it.",
            of_gpu(f"gpu_{engine}_utilization_ratio"),
            of_gpu(f"gpu_{engine}_active_ratio", what="meter"),
            of_mig(f"mig_{engine}_active_ratio"),
            top=1,
            span=6,
        )
        for title, engine, what in (
            ("Encoder", "encoder", "video encoder"),
            ("Decoder", "decoder", "video decoder"),
            ("JPEG decoder", "jpeg", "JPEG decoder"),
            ("Optical flow", "ofa", "optical flow accelerator"),
        )
    ]
    sessions = "Unknown for GPUs in MIG mode, and boards without an encoder."
    return (
        *found,
        timeline("Encoding sessions", "none", sessions, of_gpu("gpu_encoder_sessions"), span=8),
        timeline(
            "Frames encoded",
            "fps",
            f"Mean frame rate of the sessions. {sessions}",
            of_gpu("gpu_encoder_frames_per_second"),
            span=8,
        ),
        timeline(
            "Encoding latency",
            "s",
            f"Mean latency of the sessions. {sessions}",
            of_gpu("gpu_encoder_latency_seconds"),
            span=8,
        ),
    )


def _gpu_share(part: str, whole: str) -> Query:
    """Return a query of one series of each GPU as a share of another."""
    shares = f"gpuslice_gpu_{part}{{{ON_GPUS}}} / gpuslice_gpu_{whole}{{{ON_GPUS}}}"
    return Query(by_gpu(shares), GPU)


def _mig_share(part: str, whole: str) -> Query:
    """Return a query of one series of each MIG device as a share of another."""
    shares = f"gpuslice_mig_{part}{{{ON_GPUS}}} / gpuslice_mig_{whole}{{{ON_GPUS}}}"
    return Query(by_mig(shares), MIG)


def _meter(title: str, name: str, what: str, span: int = 12) -> Panel:
    return timeline(title, "percentunit", f"{what} {_METER}", *both(f"{name}_ratio"), top=1, span=span)
