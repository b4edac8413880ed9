"""Errors of GPUs and their repair."""

from dashboards.board import Panel
from dashboards.hardware_now import INDEX, NODE, UUID
from dashboards.panels import BAD, NEUTRAL, WARNING, YES_IS_BAD, Query, row, timeline
from dashboards.promql import DEVICE, GPU, ON_GPUS, by_gpu, gpu_names
from dashboards.shares import of_gpus
from dashboards.tables import Column, Nothing, listing

WATCHED = f"gpuslice_gpu_events_watched{{{ON_GPUS}}} == 1"


def errors() -> tuple[Panel, ...]:
    """Return the row."""
    return (_xids(), _events(), _xid_rate(), _ecc_rate(), _ecc(), _repairs())


def _xids() -> Panel:
    last = f"gpuslice_gpu_xid_last_timestamp_seconds{{{ON_GPUS}}}"
    count = f"gpuslice_gpu_xid_code_errors_total{{{ON_GPUS}}} > 0"
    code = ("mig_uuid", "xid")
    return listing(
        "XID errors",
        "The last error of each GPU and code, and the number since the exporter's start. Meanings: "
        "docs/xids.md. Unknown: the exporter is not subscribed to events.",
        [
            NODE,
            INDEX,
            Column(name="mig_uuid", title="MIG device", empty="-"),
            Column(name="xid", title="XID"),
            Column(name="Value #A", title="Last", unit="dateTimeFromNow"),
            Column(name="Value #B", title="How many", unit="none"),
        ],
        Query(by_gpu(f"{last} * 1000", *code)),
        Query(by_gpu(count, *code)),
        sort="Last",
        span=12,
        height=8,
        nothing=Nothing("xid", WATCHED),
    )


def _events() -> Panel:
    return listing(
        "Other events",
        "Events of GPUs since the exporter's start, such as storms of ECC errors or changes of MIG. "
        "Unknown: the exporter is not subscribed to events.",
        [NODE, INDEX, Column(name="event", title="Event"), Column(name="Value #A", title="How many")],
        Query(by_gpu(f"gpuslice_gpu_events_total{{{ON_GPUS}}} > 0", "event")),
        sort="How many",
        span=12,
        height=8,
        nothing=Nothing("event", WATCHED),
    )


def _xid_rate() -> Panel:
    counted = f"gpuslice_gpu_xid_code_errors_total{{{ON_GPUS}}}"
    # The first count of a new code counts as growth. A series that was not scraped for a while is not new.
    new = f"{counted} unless max_over_time({counted}[1h] offset $__rate_interval)"
    grew = f"({new} or increase({counted}[$__rate_interval])) > 0"
    rows = f"{grew} or on ({DEVICE}) {row(f'0 * ({WATCHED})', 'xid', 'none')}"
    return timeline(
        "XID errors over time",
        "none",
        "New errors by code, per step. Codes that did not occur are left out; none: the GPU had no error.",
        Query(by_gpu(rows, "xid", "mig_uuid"), f"{GPU} · XID {{{{xid}}}} {{{{mig_uuid}}}}"),
    )


def _ecc_rate() -> Panel:
    errors = f'gpuslice_gpu_ecc_errors_total{{{ON_GPUS}, scope="volatile"}}'
    return timeline(
        "ECC errors over time",
        "none",
        "New errors by severity, per step. Only GPUs with ECC.",
        Query(by_gpu(f"increase({errors}[$__rate_interval])", "severity"), f"{GPU} · {{{{severity}}}}"),
    )


def _ecc() -> Panel:
    columns = []
    queries = []
    found = f"gpuslice_gpu_ecc_location_errors_total{{{ON_GPUS}}}"
    ailing = f"sum by ({DEVICE}, location) ({found}) > 0"
    kinds = [
        (severity, scope) for severity in ("corrected", "uncorrected") for scope in ("volatile", "aggregate")
    ]
    for place, (severity, scope) in enumerate(kinds):
        since = "since load" if scope == "volatile" else "ever"
        steps: dict[float, str] = {0: NEUTRAL, 1: BAD} if severity == "uncorrected" else {}
        name = f"Value #{chr(ord('A') + place)}"
        columns.append(Column(name=name, title=f"{severity.capitalize()} {since}", unit="none", steps=steps))
        kind = f'severity="{severity}", scope="{scope}"'
        # The sums of a GPU are one more row, next to those of its memories.
        sums = f'label_replace(gpuslice_gpu_ecc_errors_total{{{ON_GPUS}, {kind}}}, "location", "all", "", "")'
        part = f"gpuslice_gpu_ecc_location_errors_total{{{ON_GPUS}, {kind}}}"
        parts = f"({part} and on ({DEVICE}, location) {ailing})"
        queries.append(Query(by_gpu(f"{sums} or {parts}", "location")))
    return listing(
        "ECC errors",
        "Errors by memory; all: of the whole GPU. Memories without errors and GPUs without ECC are left "
        "out. Since load: of the driver. Ever: lifetime of the board.",
        [NODE, INDEX, Column(name="location", title="Memory"), *columns],
        *queries,
        nothing=Nothing("location", f"gpuslice_gpu_ecc_enabled{{{ON_GPUS}}} == 0", "ECC is off"),
        sort=("Node", "GPU", "Memory"),
        height=8,
    )


def _repairs() -> Panel:
    def counted(name: str, label: str, value: str) -> Query:
        return Query(by_gpu(f'gpuslice_gpu_{name}{{{ON_GPUS}, {label}="{value}"}}'))

    whole = f"max by (cluster, node, gpu, uuid) ({gpu_names(ON_GPUS)})"
    warn_from_one: dict[float, str] = {0: NEUTRAL, 1: WARNING}
    return listing(
        "Memory repairs",
        "Rows remapped to spare ones (from Ampere on, not in MIG mode), or retired pages (before), by "
        "cause; pending ones, which need a reset or reboot; and banks with few or no spare rows. Needs: "
        "recovery action. Unknown: not supported by the GPU or its driver.",
        [
            NODE,
            INDEX,
            Column(name="action", title="Needs"),
            Column(name="Value #C", title="Row remap pending", words=YES_IS_BAD),
            Column(name="Value #D", title="Row remap failed", words=YES_IS_BAD),
            Column(name="Value #E", title="Rows, corrected", unit="none", steps=warn_from_one),
            Column(name="Value #F", title="Rows, uncorrected", unit="none", steps=warn_from_one),
            Column(name="Value #G", title="Banks, few spares", unit="none", steps=warn_from_one),
            Column(name="Value #H", title="Banks, no spares", unit="none", steps={0: NEUTRAL, 1: BAD}),
            Column(name="Value #I", title="Page pending", words=YES_IS_BAD),
            Column(name="Value #J", title="Pages, single bit", unit="none", steps=warn_from_one),
            Column(name="Value #K", title="Pages, double bit", unit="none", steps=warn_from_one),
            UUID,
        ],
        Query(whole),
        Query(by_gpu(f"gpuslice_gpu_recovery_action{{{ON_GPUS}}} == 1", "action")),
        Query(of_gpus("gpu_row_remap_pending")),
        Query(of_gpus("gpu_row_remap_failure")),
        counted("remapped_rows", "severity", "corrected"),
        counted("remapped_rows", "severity", "uncorrected"),
        counted("row_remap_banks", "left", "low"),
        counted("row_remap_banks", "left", "none"),
        Query(of_gpus("gpu_retired_pages_pending")),
        counted("retired_pages", "cause", "single_bit"),
        counted("retired_pages", "cause", "double_bit"),
        sort=("Node", "GPU"),
        height=8,
    )
