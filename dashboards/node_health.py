"""Health of a node's data: its sources, what is unknown, and the exporter itself."""

from dashboards.board import Panel
from dashboards.panels import WARNING, YES_IS_GOOD, Query, states, timeline
from dashboards.presence import ANSWERS, answering
from dashboards.promql import GPU, NODE, NODES_LATELY, ON_GPUS, ON_NODES, TARGET, by_gpu, by_node
from dashboards.tables import Column, Nothing, listing

_NODE = Column(name="node", title="Node")

_WATCHED = f"gpuslice_gpu_events_watched{{{ON_GPUS}}} == 1"
_POLLED = f"gpuslice_collector_success{{{ON_NODES}}}"


def health() -> tuple[Panel, ...]:
    """Return the row."""
    return (*_answering(), *_sources(), *_missing(), *_failures(), *_exporter())


def _answering() -> tuple[Panel, ...]:
    # A target that cannot be scraped no longer reports its node.
    scraped = f"max by (cluster, node) (up{{{ON_NODES}}} * on ({TARGET}) group_left (node) {NODES_LATELY})"
    return (
        states(
            "Nodes and GPUs that answer",
            "Node: Prometheus could scrape the exporter. GPU: it could be read; not if it is lost or "
            "unresponsive, or its driver is released. A gap: no data.",
            ANSWERS,
            Query(scraped, NODE),
            answering(GPU),
            series=f"up{{{ON_NODES}}}",
        ),
        states(
            "Sources of data",
            "Whether the last read of each source succeeded. A gap: no data.",
            ANSWERS,
            Query(_of_node("collector_success", "collector"), f"{NODE} · {{{{collector}}}}"),
            series=_POLLED,
        ),
    )


def _sources() -> tuple[Panel, ...]:
    return (
        timeline(
            "Read duration by source",
            "s",
            "Duration of the last read of each source.",
            Query(_of_node("collector_duration_seconds", "collector"), f"{NODE} · {{{{collector}}}}"),
        ),
        timeline(
            "Data age",
            "s",
            "Time since the last poll, the last allocations from the kubelet, and the last success of each "
            "source, at the time of the scrape.",
            Query(_age("snapshot_timestamp_seconds"), f"{NODE} · poll"),
            Query(_age("allocations_timestamp_seconds"), f"{NODE} · kubelet's answer"),
            Query(
                _age("collector_last_success_timestamp_seconds", "collector"), f"{NODE} · {{{{collector}}}}"
            ),
        ),
    )


def _missing() -> tuple[Panel, ...]:
    # Each has other labels: they are put into one.
    parts = (
        ("pod_annotations_unreadable", "system", "entitlements by $1: pod annotations are unreadable"),
        ("allocations_unresolved", "resource", "ids of $1 that match no device"),
        ("attribution_inconsistent_total", "quantity", "polls in which holders' $1 exceeded the device"),
    )
    rows = " or ".join(
        f'label_replace(sum by ({TARGET}, {label}) (gpuslice_{name}{{{ON_NODES}}}), "what", "{text}", '
        f'"{label}", "(.*)") > 0'
        for name, label, text in parts
    )
    return (
        states(
            "Use by process is known",
            "Whether use can be attributed to processes and containers. Not if the host's processes cannot "
            "be seen.",
            YES_IS_GOOD,
            Query(_of_node("process_attribution_available"), NODE),
            series=f"gpuslice_process_attribution_available{{{ON_NODES}}}",
            height=6,
        ),
        listing(
            "Unknown data",
            "A row for each kind of unknown or inconsistent data, and how much; doctor reports the cause. "
            "Counts of polls are since the exporter's start.",
            [
                _NODE,
                Column(name="what", title="What"),
                Column(name="Value #A", title="How many", unit="none", steps={0: WARNING}),
            ],
            Query(by_node(rows, "what")),
            span=12,
            height=6,
            nothing=Nothing("what", _POLLED),
        ),
    )


def _failures() -> tuple[Panel, ...]:
    last = f"gpuslice_gpu_xid_last_timestamp_seconds{{{ON_GPUS}}}"
    count = f"gpuslice_gpu_xid_code_errors_total{{{ON_GPUS}}} > 0"
    code = ("mig_uuid", "xid")
    return (
        listing(
            "XID errors",
            "The last error of each GPU and code, and the number since the exporter's start. Meanings: "
            "docs/xids.md. Unknown: the exporter is not subscribed to events.",
            [
                _NODE,
                Column(name="gpu", title="GPU"),
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
            nothing=Nothing("xid", _WATCHED),
        ),
        listing(
            "Failed reads",
            "Failed reads of sources since the exporter's start, by reason.",
            [
                _NODE,
                Column(name="collector", title="Source"),
                Column(name="reason", title="Reason"),
                Column(name="Value #A", title="How many", unit="none"),
            ],
            Query(by_node(f"gpuslice_collector_errors_total{{{ON_NODES}}} > 0", "collector", "reason")),
            sort="How many",
            span=12,
            height=8,
            nothing=Nothing("reason", _POLLED),
        ),
        listing(
            "Driver calls that failed",
            "Driver calls that failed since the exporter's start. Without a UUID: about no single GPU, or "
            "an unidentified one.",
            [
                _NODE,
                Column(name="call", title="Call"),
                Column(name="error", title="Error"),
                Column(name="uuid", title="UUID", empty="-"),
                Column(name="Value #A", title="How many", unit="none"),
            ],
            Query(by_node(f"gpuslice_nvml_errors_total{{{ON_NODES}}} > 0", "uuid", "call", "error")),
            sort="How many",
            span=12,
            height=8,
            nothing=Nothing("error", _POLLED),
        ),
    )


def _exporter() -> tuple[Panel, ...]:
    return (
        timeline(
            "CPU of the exporter",
            "percentunit",
            "CPU time of the exporter itself; 100 % is one core.",
            Query(by_node(f"rate(process_cpu_seconds_total{{{ON_NODES}}}[$__rate_interval])"), NODE),
        ),
        timeline(
            "Memory of the exporter",
            "bytes",
            "Resident memory of the exporter itself.",
            Query(by_node(f"process_resident_memory_bytes{{{ON_NODES}}}"), NODE),
        ),
    )


def _of_node(name: str, *labels: str) -> str:
    return by_node(f"gpuslice_{name}{{{ON_NODES}}}", *labels)


def _age(name: str, *labels: str) -> str:
    series = f"gpuslice_{name}{{{ON_NODES}}}"
    return by_node(f"timestamp({series}) - {series}", *labels)
