"""Current state of the hardware: numbers, the table of GPUs, and which of them answer."""

from dashboards.board import Panel
from dashboards.hardware_series import UNTIL_SLOWDOWN
from dashboards.panels import BAD, GOOD, NEUTRAL, WARNING, Query, number, states
from dashboards.presence import ANSWERS, GPUS_LOST, GPUS_THERE, XID_CODES, answering, each
from dashboards.promql import GPU, ON_GPUS, by_gpu
from dashboards.shares import of_gpus
from dashboards.tables import Column, leads_to, listing

NODE = Column(name="node", title="Node", link=leads_to("gpuslice-node", node="Node"))
INDEX = Column(name="gpu", title="GPU", width=60)
UUID = Column(name="uuid", title="UUID")

# Heat, or a signal of the board. The power limit and idleness also limit clocks, which is normal.
_SLOWING = "software_thermal|hardware_thermal|hardware_slowdown|power_brake"
_SLOWED = by_gpu(f'gpuslice_gpu_clock_event_active{{{ON_GPUS}, reason=~"{_SLOWING}"}}')
_REPAIRS = f'gpuslice_gpu_condition{{{ON_GPUS}, condition=~"needs_reset|needs_reboot|replace_board"}}'
_UNCORRECTED = f'gpuslice_gpu_ecc_errors_total{{{ON_GPUS}, severity="uncorrected", scope="volatile"}}'


def now() -> tuple[Panel, ...]:
    """Return the numbers, the table of GPUs, and which of them answered."""
    return (*_numbers(), _table(), _states())


def _numbers() -> tuple[Panel, ...]:
    watts, limit = (f"gpuslice_gpu_{name}_watts{{{ON_GPUS}}}" for name in ("power", "power_limit"))
    return (
        _number("GPUs", "none", "Devices of the chosen nodes, all vendors, including lost ones.", GPUS_THERE),
        _number(
            "GPUs not answering",
            "none",
            "GPUs that are lost or unresponsive. Unknown while the driver is released, and for devices of "
            "other vendors, which are not read.",
            GPUS_LOST,
            {0: GOOD, 1: BAD},
        ),
        _number(
            "Hottest GPU",
            "celsius",
            "Temperature of the hottest core.",
            f"max({of_gpus('gpu_temperature_celsius')})",
        ),
        _number(
            "Power by limit",
            "percentunit",
            "Power of all GPUs by the sum of their limits, of GPUs with both known.",
            f"sum({by_gpu(f'{watts} and {limit}')}) / sum({by_gpu(f'{limit} and {watts}')})",
        ),
        _number(
            "GPUs slowed down",
            "none",
            "GPUs with clocks limited now by heat or by a signal of the board. Not for AMD GPUs.",
            f"sum({_SLOWED})",
            {0: GOOD, 1: WARNING},
        ),
        _number(
            "XID codes",
            "none",
            "XID codes that GPUs had in the chosen time, counted by GPU. Unknown if the exporter is not "
            "subscribed to events.",
            XID_CODES,
            {0: GOOD, 1: WARNING},
        ),
        _number(
            "Uncorrected ECC errors",
            "none",
            "Uncorrected memory errors since the drivers were loaded. Only GPUs with ECC.",
            f"sum({by_gpu(_UNCORRECTED)})",
            {0: GOOD, 1: BAD},
        ),
        _number(
            "GPUs that need a repair",
            "none",
            "GPUs that need a reset, a reboot of their node or a new board: see docs/xids.md. Unknown if a "
            "driver does not report what could raise it.",
            f"sum({by_gpu(_REPAIRS)})",
            {0: GOOD, 1: BAD},
        ),
    )


def _number(
    title: str, unit: str, description: str, expr: str, steps: dict[float, str] | None = None
) -> Panel:
    return number(title, unit, description, Query(expr), steps=steps, span=3)


def _states() -> Panel:
    return states(
        "GPUs that answer",
        "Whether a GPU could be read; not if it is lost or unresponsive, or its driver is released. A gap: "
        "no data.",
        ANSWERS,
        answering(GPU),
        series=f"gpuslice_gpu_up{{{ON_GPUS}}}",
        span=24,
        height=6,
    )


def _table() -> Panel:
    used, total = (f"gpuslice_gpu_memory_{name}_bytes{{{ON_GPUS}}}" for name in ("used", "total"))
    watts, limit = (f"gpuslice_gpu_{name}_watts{{{ON_GPUS}}}" for name in ("power", "power_limit"))
    links, up = (f"gpuslice_gpu_{name}{{{ON_GPUS}}}" for name in ("nvlinks", "nvlinks_active"))
    return listing(
        "GPUs now",
        "A row for each device. GPUs that were lost before they had a name share one row. Unknown: not "
        "reported, or a device of another vendor. Needs: recovery action of newer drivers.",
        [
            NODE,
            INDEX,
            Column(name="model", title="Model"),
            Column(name="Value #B", title="Answers", words=ANSWERS),
            Column(name="action", title="Needs", width=130),
            Column(name="Value #D", title="Utilization", unit="percentunit"),
            Column(name="Value #E", title="Memory used", unit="percentunit"),
            Column(name="Value #F", title="Power", unit="watt"),
            Column(name="Value #G", title="Of the limit", unit="percentunit"),
            Column(name="Value #H", title="Temperature", unit="celsius"),
            Column(name="Value #I", title="Until slowdown", unit="celsius", steps={0: WARNING, 10: NEUTRAL}),
            Column(name="Value #J", title="SM clock", unit="hertz"),
            Column(name="Value #K", title="Slowed down", words={1: ("yes", WARNING), 0: ("no", NEUTRAL)}),
            Column(name="Value #L", title="Uncorrected ECC", unit="none", steps={0: NEUTRAL, 1: BAD}),
            Column(name="Value #M", title="NVLinks down", unit="none", steps={0: NEUTRAL, 1: WARNING}),
            UUID,
        ],
        each("model"),
        answering(),
        Query(by_gpu(f"gpuslice_gpu_recovery_action{{{ON_GPUS}}} == 1", "action")),
        Query(of_gpus("gpu_utilization_ratio")),
        Query(by_gpu(f"{used} / {total}")),
        Query(by_gpu(watts)),
        Query(by_gpu(f"{watts} / {limit}")),
        Query(of_gpus("gpu_temperature_celsius")),
        Query(UNTIL_SLOWDOWN),
        Query(by_gpu(f'gpuslice_gpu_clock_hertz{{{ON_GPUS}, clock="sm"}}')),
        Query(_SLOWED),
        Query(by_gpu(_UNCORRECTED)),
        Query(by_gpu(f"{links} - {up}")),
        sort=("Node", "GPU"),
    )
