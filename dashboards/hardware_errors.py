"""The row of the dashboard Hardware about errors of GPUs and their repair."""

from dashboards.board import Panel
from dashboards.hardware_load import STANDARD
from dashboards.panels import BAD, NEUTRAL, WARNING, YES_IS_BAD, Query, timeline
from dashboards.selectors import GPU, GPUS, or_none, without_target
from dashboards.tables import CLUSTER, NODE, Column, listing
from dashboards.tables import number as value

INDEX = Column(name="gpu", title="GPU", numeric=True, width=60, empty="")
_WATCHED = f"gpuslice_gpu_events_watched{{{GPUS}}} == 1"


def errors() -> tuple[Panel, ...]:
    """Return the row."""
    return (*_xids(), _ecc_rate(), _repairs(), _conditions(), _events(), _ecc())


def _xids() -> tuple[Panel, ...]:
    last, count = (
        f"gpuslice_gpu_{name}{{{GPUS}}}" for name in ("xid_last_timestamp_seconds", "xid_code_errors_total")
    )
    return (
        listing(
            "XID errors",
            "The last error of each GPU and code, and the number since the exporter's start. Meanings: "
            "docs/xids.md. Empty: the exporter is not subscribed to events.",
            [
                NODE,
                INDEX,
                Column(name="xid", title="XID", width=60),
                Column(name="class", title="Class"),
                value("A", "Last", "dateTimeFromNow", width=130),
                value("B", "Number"),
            ],
            or_none(f"{without_target(last)} * 1000", "xid", _WATCHED),
            without_target(count),
            sort="Last",
            span=12,
        ),
        timeline(
            "XID errors over time",
            "none",
            "New errors of each GPU within a rate interval.",
            Query(f"increase(gpuslice_gpu_xid_errors_total{{{GPUS}}}[$__rate_interval])", GPU),
        ),
    )


def _ecc_rate() -> Panel:
    errors = f'gpuslice_gpu_ecc_errors_total{{{GPUS}, scope="volatile"}}'
    return timeline(
        "ECC errors over time",
        "none",
        "New errors by severity within a rate interval. Only GPUs with ECC.",
        Query(f"increase({errors}[$__rate_interval])", f"{GPU} · {{{{severity}}}}"),
    )


def _repairs() -> Panel:
    def rows(severity: str) -> str:
        series = f'gpuslice_gpu_remapped_rows{{{GPUS}, severity="{severity}"}}'
        return f"max without (job, instance, severity) ({series})"

    warn_from_one: dict[float, str] = {0: NEUTRAL, 1: WARNING}
    return listing(
        "Memory repairs",
        "Rows remapped to spare ones (from Ampere on, not in MIG mode) by cause, and pending remaps, which "
        "need a reset. Unknown: not supported by the GPU or its driver.",
        [
            NODE,
            INDEX,
            value("A", "Corrected", steps=warn_from_one),
            value("B", "Uncorrected", steps=warn_from_one),
            value("C", "Pending", words=YES_IS_BAD),
            value("D", "Failed", words=YES_IS_BAD),
        ],
        rows("corrected"),
        rows("uncorrected"),
        without_target(f"gpuslice_gpu_row_remap_pending{{{GPUS}}}"),
        without_target(f"gpuslice_gpu_row_remap_failure{{{GPUS}}}"),
        sort=("Node", "GPU"),
        span=12,
    )


def _conditions() -> Panel:
    raised = f"max by (cluster, node, gpu, uuid, condition) (gpuslice_gpu_condition{{{GPUS}}}) == 1"
    return listing(
        "Conditions",
        "Conditions of GPUs; docs/xids.md has what raises and clears each.",
        [
            CLUSTER,
            NODE,
            INDEX,
            Column(name="condition", title="Condition"),
        ],
        or_none(raised, "condition", f"gpuslice_gpu_up{{{GPUS}}}"),
        span=12,
    )


def _events() -> Panel:
    events = without_target(f"gpuslice_gpu_events_total{{{GPUS}}} > 0")
    return listing(
        "Other events",
        "Events of GPUs since the exporter's start, such as storms of ECC errors or changes of MIG. "
        f"{STANDARD}",
        [NODE, INDEX, Column(name="event", title="Event"), value("A", "How many")],
        or_none(events, "event", _WATCHED),
        sort="How many",
        span=12,
    )


def _ecc() -> Panel:
    def errors(severity: str, scope: str) -> str:
        kind = f'severity="{severity}", scope="{scope}"'
        return (
            "max without (job, instance, severity, scope) "
            f"(gpuslice_gpu_ecc_location_errors_total{{{GPUS}, {kind}}}) > 0"
        )

    bad_from_one: dict[float, str] = {0: NEUTRAL, 1: BAD}
    return listing(
        "ECC errors by memory",
        "Errors by memory since the driver was loaded, and over the lifetime of the board. Memories without "
        f"errors are left out. {STANDARD}",
        [
            NODE,
            INDEX,
            Column(name="location", title="Memory"),
            value("A", "Corrected"),
            value("B", "Corrected ever"),
            value("C", "Uncorrected", steps=bad_from_one),
            value("D", "Uncorrected ever", steps=bad_from_one),
        ],
        *(
            errors(severity, scope)
            for severity in ("corrected", "uncorrected")
            for scope in ("volatile", "aggregate")
        ),
        sort=("Node", "GPU", "Memory"),
    )
