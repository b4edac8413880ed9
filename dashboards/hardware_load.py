"""How busy GPUs are: by the driver, by their profiling meters, their memory and their engines for video."""

from dashboards.board import Panel
from dashboards.hardware_series import MIG, both, of_gpu, of_mig
from dashboards.panels import Query, timeline
from dashboards.promql import GPU, ON_GPUS, by_gpu, by_mig

_METER = (
    "As a share of the GPU or MIG device. From Hopper on (GPM); older GPUs with --dcgm-exporter-url. No "
    "line: it is not measured."
)


def load() -> tuple[Panel, ...]:
    """Make the row of what every GPU tells."""
    return (
        timeline(
            "Utilization",
            "percentunit",
            "Share of time in which a kernel was running. Not told of GPUs in MIG mode; of AMD's partitions.",
            of_gpu("gpu_utilization_ratio"),
            of_mig("mig_utilization_ratio"),
            top=1,
        ),
        timeline(
            "Memory being read or written",
            "percentunit",
            "Share of time in which the memory was being read or written: traffic, not how full it is. Not "
            "told of GPUs in MIG mode.",
            of_gpu("gpu_memory_copy_utilization_ratio"),
            top=1,
        ),
        timeline(
            "Memory used",
            "bytes",
            "Frame buffer in use, without what the driver keeps for itself.",
            of_gpu("gpu_memory_used_bytes"),
        ),
        timeline(
            "Memory used, of all",
            "percentunit",
            "Frame buffer in use, of what the GPU or MIG device has. Of a MIG device unknown where compute "
            "instances share it.",
            _gpu_share("memory_used_bytes", "memory_total_bytes"),
            _mig_share("memory_used_bytes", "memory_total_bytes"),
            top=1,
        ),
    )


def profiling() -> tuple[Panel, ...]:
    """Make the row of the profiling meters."""
    return (
        _meter(
            "Multiprocessors at work", "sm_active", "Time with a warp on a multiprocessor, averaged over all."
        ),
        _meter("Warps, of those there is room for", "sm_occupancy", "How full the multiprocessors are."),
        _meter("Tensor cores", "tensor_active", "Cycles with a tensor core at work."),
        _meter("Memory bandwidth", "dram_active", "Traffic of the memory, of the most there can be."),
        _meter(
            "Double precision", "fp64_active", "Cycles with the FP64 pipe at work, tensor cores apart.", 8
        ),
        _meter(
            "Single precision", "fp32_active", "Cycles with the FP32 pipe at work, tensor cores apart.", 8
        ),
        _meter("Half precision", "fp16_active", "Cycles with the FP16 pipe at work, tensor cores apart.", 8),
        _meter("Integers", "integer_active", "Cycles with the integer pipe at work.", 8),
        _meter("Compute or graphics", "graphics_engine_active", "Time with the engine at work.", 8),
        _meter("Tensor cores, half precision", "tensor_hmma_active", "Cycles at work on half precision.", 8),
    )


def memory() -> tuple[Panel, ...]:
    """Make the row of memory in detail."""
    return (
        timeline(
            "Memory free",
            "bytes",
            "Frame buffer that is free, of GPUs and of MIG devices.",
            *both("memory_free_bytes"),
        ),
        timeline(
            "Memory that the driver keeps",
            "bytes",
            "Frame buffer that the driver keeps for itself. Older drivers cannot tell.",
            *both("memory_reserved_bytes"),
        ),
        timeline(
            "Memory of GPUs and MIG devices",
            "bytes",
            "Frame buffer that there is: used, free and kept by the driver.",
            *both("memory_total_bytes"),
        ),
        timeline(
            "BAR1 used",
            "percentunit",
            "Use of the window through which the host reaches the frame buffer; what has to be mapped there "
            "fails when it is full.",
            _gpu_share("bar1_used_bytes", "bar1_total_bytes"),
            _mig_share("bar1_used_bytes", "bar1_total_bytes"),
            top=1,
        ),
    )


def engines() -> tuple[Panel, ...]:
    """Make the row of the engines for video and images."""
    found = [
        timeline(
            title,
            "percentunit",
            f"Share of time in which the {what} was busy: by the driver, and by the profiling meter of the "
            "GPU or its MIG devices where it has one. Not told of boards without it.",
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
    sessions = "Not told of GPUs in MIG mode, nor of boards without an encoder."
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
            "Time to encode a frame",
            "s",
            f"Mean latency of the sessions. {sessions}",
            of_gpu("gpu_encoder_latency_seconds"),
            span=8,
        ),
    )


def _gpu_share(part: str, whole: str) -> Query:
    """Draw one series of each GPU as a share of another."""
    shares = f"gpuslice_gpu_{part}{{{ON_GPUS}}} / gpuslice_gpu_{whole}{{{ON_GPUS}}}"
    return Query(by_gpu(shares), GPU)


def _mig_share(part: str, whole: str) -> Query:
    """Draw one series of each MIG device as a share of another."""
    shares = f"gpuslice_mig_{part}{{{ON_GPUS}}} / gpuslice_mig_{whole}{{{ON_GPUS}}}"
    return Query(by_mig(shares), MIG)


def _meter(title: str, name: str, what: str, span: int = 12) -> Panel:
    return timeline(title, "percentunit", f"{what} {_METER}", *both(f"{name}_ratio"), top=1, span=span)
