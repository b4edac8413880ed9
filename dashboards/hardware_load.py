"""Rows of the dashboard Hardware about load, clocks, power, heat and links."""

from dashboards.board import Panel
from dashboards.panels import ENERGY_STEP, GOOD, WARNING, Query, Words, states, timeline
from dashboards.selectors import GPU, GPUS, MIG

STANDARD = "Needs --metric-set standard."
"""For the description of a panel whose series are not among the default ones."""
_METER = "From Hopper on; older GPUs with --dcgm-exporter-url."
_HOLDS: Words = {1: ("limits the clocks", WARNING), 0: ("does not", GOOD)}


def gauge(name: str, *labels: str, what: str = "", limit: bool = False) -> Query:
    """Return a query of a series of each GPU; the legend has its ``labels`` and the text ``what``."""
    return Query(f"gpuslice_gpu_{name}{{{GPUS}}}", _legend(GPU, labels, what), limit=limit)


def rate(name: str, *labels: str, what: str = "") -> Query:
    """Return a query of the rate of a counter of each GPU."""
    series = f"rate(gpuslice_gpu_{name}_total{{{GPUS}}}[$__rate_interval])"
    return Query(series, _legend(GPU, labels, what))


def of_mig(name: str) -> Query:
    """Return a query of a series of each MIG device."""
    return Query(f"gpuslice_mig_{name}{{{GPUS}}}", MIG)


def _legend(device: str, labels: tuple[str, ...], what: str) -> str:
    words = (*(f"{{{{{label}}}}}" for label in labels), what)
    return " · ".join((device, *filter(None, words)))


def clocks() -> tuple[Panel, ...]:
    """Return the row of clocks."""
    return (
        _clock("SM clock", "sm"),
        _clock("Memory clock", "memory"),
        states(
            "Clock limit reasons",
            "Whether each reason limits the clocks. A power cap is normal under load; heat and power brakes "
            f"are not. Not for AMD GPUs. The default series have five reasons; others: {STANDARD}",
            _HOLDS,
            Query(f'gpuslice_gpu_clock_event_active{{{GPUS}, reason!="idle"}}', f"{GPU} · {{{{reason}}}}"),
            height=12,
        ),
        timeline(
            "Time with limited clocks",
            "percentunit",
            f"Share of time in which each reason limited the clocks. Not for AMD GPUs. {STANDARD}",
            rate("violation_seconds", "reason"),
            top=1,
            height=12,
        ),
    )


def _clock(title: str, clock: str) -> Panel:
    return timeline(
        title,
        "hertz",
        f"Clock, and its maximum (dashed). Low on an idle GPU. The maximum: {STANDARD}",
        Query(f'gpuslice_gpu_clock_hertz{{{GPUS}, clock="{clock}"}}', GPU),
        Query(f'gpuslice_gpu_clock_max_hertz{{{GPUS}, clock="{clock}"}}', f"{GPU} · maximum", limit=True),
    )


def heat() -> tuple[Panel, ...]:
    """Return the row of power and temperatures."""
    watts, limit = (f"gpuslice_gpu_{name}_watts{{{GPUS}}}" for name in ("power", "power_limit"))
    return (
        timeline(
            "Power, of the limit",
            "percentunit",
            "At 100 % the power limit lowers the clocks.",
            Query(f"{watts} / {limit}", GPU),
            top=1,
        ),
        timeline(
            "Power from the energy",
            "watt",
            "Mean power from the GPU's energy counter, which includes all peaks. From Volta on.",
            rate("energy_joules"),
        ).interval(ENERGY_STEP),
        timeline(
            "Memory temperature",
            "celsius",
            "Temperature of the memory. Only boards with HBM.",
            gauge("memory_temperature_celsius"),
        ),
        timeline(
            "Degrees until slowdown",
            "celsius",
            f"Margin of the core temperature until the GPU slows down. From Ada on. {STANDARD}",
            gauge("temperature_limit_margin_celsius"),
        ),
        timeline(
            "Power by measurement",
            "watt",
            f"Average, instantaneous, of the module or of the memory, if the GPU measures it. {STANDARD}",
            gauge("power_part_watts", "part"),
        ),
        timeline(
            "Fan",
            "percentunit",
            f"Fan speed, of its maximum. Most server boards have no fan. {STANDARD}",
            gauge("fan_ratio"),
            top=1,
        ),
    )


def links() -> tuple[Panel, ...]:
    """Return the row of PCIe and NVLink."""
    now, most = (
        f"gpuslice_gpu_pcie_link_width{part}{{{GPUS}}} * "
        f"2 ^ gpuslice_gpu_pcie_link_generation{part}{{{GPUS}}}"
        for part in ("", "_max")
    )
    return (
        *(
            timeline(
                f"{title} traffic",
                "Bps",
                f"Bytes that each GPU sent and received over {title}: from a byte counter of the driver, or "
                "its profiling metrics.",
                *(_traffic(link, way, what) for way, what in (("transmit", "sent"), ("receive", "received"))),
            )
            for title, link in (("PCIe", "pcie"), ("NVLink", "nvlink"))
        ),
        timeline(
            "PCIe replays",
            "none",
            "Packets that were sent again, per second.",
            rate("pcie_replays"),
        ),
        timeline(
            "PCIe link, of its maximum",
            "percentunit",
            "Width and generation of the link, of the maximum of GPU and slot. An idle GPU lowers its "
            f"generation; missing lanes under load point to a bad contact. {STANDARD}",
            Query(f"({now}) / ({most})", GPU),
            top=1,
        ),
        timeline(
            "Active NVLinks",
            "none",
            f"Active links, and all links of the GPU (dashed). All links: {STANDARD}",
            gauge("nvlinks_active"),
            gauge("nvlinks", what="all", limit=True),
        ),
        timeline(
            "NVLink errors",
            "none",
            f"Errors of all links per second, by kind. {STANDARD}",
            rate("nvlink_errors", "error"),
        ),
    )


def _traffic(link: str, way: str, what: str) -> Query:
    name = f"gpuslice_gpu_{link}_{way}_bytes"
    counter = f"rate({name}_total{{{GPUS}}}[$__rate_interval])"
    return Query(f"{counter} or {name}_per_second{{{GPUS}}}", f"{GPU} · {what}")


def profiling() -> tuple[Panel, ...]:
    """Return the row of profiling metrics."""
    core = (
        ("SM activity", "sm_active", "Time in which an SM had a warp, over all SMs."),
        ("Tensor cores", "tensor_active", "Cycles with an active tensor core."),
        ("Memory bandwidth", "dram_active", "Memory bandwidth in use, of the peak."),
        ("Graphics or compute", "graphics_engine_active", "Time with an active engine."),
    )
    standard = (
        ("Double precision (FP64)", "fp64_active", "Cycles with an active FP64 pipe."),
        ("Single precision (FP32)", "fp32_active", "Cycles with an active FP32 pipe."),
        ("Half precision (FP16)", "fp16_active", "Cycles with an active FP16 pipe."),
        ("Integers", "integer_active", "Cycles with an active integer pipe."),
        ("Half-precision tensor cores", "tensor_hmma_active", "Cycles with half precision."),
    )
    return (
        *(_meter(title, name, f"{what} {_METER}", 6) for title, name, what in core),
        timeline(
            "SM occupancy",
            "percentunit",
            f"Resident warps, of the maximum. {_METER}",
            gauge("sm_occupancy_ratio"),
            top=1,
            span=8,
        ),
        *(_meter(title, name, f"{what} {_METER} {STANDARD}") for title, name, what in standard),
    )


def _meter(title: str, name: str, what: str, span: int = 8) -> Panel:
    return timeline(
        title, "percentunit", what, gauge(f"{name}_ratio"), of_mig(f"{name}_ratio"), top=1, span=span
    )


def memory() -> tuple[Panel, ...]:
    """Return the row of memory in detail."""
    return (
        timeline(
            "Memory copy utilization",
            "percentunit",
            "Share of time in which memory was being read or written: traffic, not fill level.",
            gauge("memory_copy_utilization_ratio"),
            top=1,
            span=8,
        ),
        timeline(
            "Memory of MIG devices",
            "bytes",
            "Memory in use on each MIG device.",
            of_mig("memory_used_bytes"),
            span=8,
        ),
        timeline(
            "BAR1 used",
            "percentunit",
            "Use of BAR1, the window through which the host accesses GPU memory; mappings fail if it is "
            f"full. {STANDARD}",
            Query(f"gpuslice_gpu_bar1_used_bytes{{{GPUS}}} / gpuslice_gpu_bar1_total_bytes{{{GPUS}}}", GPU),
            top=1,
            span=8,
        ),
    )


def video() -> tuple[Panel, ...]:
    """Return the row of the engines for video and images."""
    engines = (
        ("Encoder", "encoder", "video encoder"),
        ("Decoder", "decoder", "video decoder"),
        ("JPEG decoder", "jpeg", "JPEG decoder"),
        ("Optical flow", "ofa", "optical flow accelerator"),
    )
    sessions = f"Unknown for GPUs in MIG mode, and boards without an encoder. {STANDARD}"
    return (
        *(
            timeline(
                title,
                "percentunit",
                f"Share of time in which the {what} was busy. Not for boards without it. {STANDARD}",
                gauge(f"{engine}_utilization_ratio"),
                top=1,
                span=6,
            )
            for title, engine, what in engines
        ),
        timeline("Encoding sessions", "none", sessions, gauge("encoder_sessions"), span=8),
        timeline(
            "Frames encoded",
            "fps",
            f"Mean frame rate of the sessions. {sessions}",
            gauge("encoder_frames_per_second"),
            span=8,
        ),
        timeline(
            "Encoding latency",
            "s",
            f"Mean latency of the sessions. {sessions}",
            gauge("encoder_latency_seconds"),
            span=8,
        ),
    )
