"""Whether what a node tells can be believed: its sources, what is missing, and the exporter itself."""

from dashboards.board import Panel
from dashboards.panels import WARNING, YES_IS_GOOD, Query, states, timeline
from dashboards.presence import ANSWERS, answering
from dashboards.promql import GPU, NODE, NODES_LATELY, ON_GPUS, ON_NODES, TARGET, by_gpu, by_node
from dashboards.tables import Column, Nothing, listing

_NODE = Column(name="node", title="Node")

_WATCHED = f"gpuslice_gpu_events_watched{{{ON_GPUS}}} == 1"
_POLLED = f"gpuslice_collector_success{{{ON_NODES}}}"


def health() -> tuple[Panel, ...]:
    """Make the row."""
    return (*_answering(), *_sources(), *_missing(), *_failures(), *_exporter())


def _answering() -> tuple[Panel, ...]:
    # A target that cannot be scraped no longer tells which node it is.
    scraped = f"max by (cluster, node) (up{{{ON_NODES}}} * on ({TARGET}) group_left (node) {NODES_LATELY})"
    return (
        states(
            "Nodes and GPUs that answer",
            "Node: Prometheus could scrape the exporter. GPU: it could be read; not while it is lost or "
            "failing, or its driver is given up for a reset. A gap: nobody tells.",
            ANSWERS,
            Query(scraped, NODE),
            answering(GPU),
            series=f"up{{{ON_NODES}}}",
        ),
        states(
            "Sources of data",
            "Whether the last pass of each source succeeded. A gap: nobody tells.",
            ANSWERS,
            Query(_of_node("collector_success", "collector"), f"{NODE} · {{{{collector}}}}"),
            series=_POLLED,
        ),
    )


def _sources() -> tuple[Panel, ...]:
    return (
        timeline(
            "How long sources take",
            "s",
            "How long the last pass of each source took.",
            Query(_of_node("collector_duration_seconds", "collector"), f"{NODE} · {{{{collector}}}}"),
        ),
        timeline(
            "How old the data is",
            "s",
            "Time since the last poll, since the kubelet last told the holders, and since each source last "
            "succeeded, as it was when it was scraped.",
            Query(_age("snapshot_timestamp_seconds"), f"{NODE} · poll"),
            Query(_age("allocations_timestamp_seconds"), f"{NODE} · kubelet's answer"),
            Query(
                _age("collector_last_success_timestamp_seconds", "collector"), f"{NODE} · {{{{collector}}}}"
            ),
        ),
    )


def _missing() -> tuple[Panel, ...]:
    # Each is told by other labels: they are brought into one.
    parts = (
        ("pod_annotations_unreadable", "system", "entitlements by $1, for want of the pods' annotations"),
        ("allocations_unresolved", "resource", "devices of $1 that match none"),
        ("attribution_inconsistent_total", "quantity", "polls in which holders' $1 was more than there is"),
    )
    rows = " or ".join(
        f'label_replace(sum by ({TARGET}, {label}) (gpuslice_{name}{{{ON_NODES}}}), "what", "{text}", '
        f'"{label}", "(.*)") > 0'
        for name, label, text in parts
    )
    return (
        states(
            "Processes can be told apart",
            "Whether the numbers of single processes, and so the use by container, can be trusted. Not where "
            "the host's processes cannot be seen.",
            YES_IS_GOOD,
            Query(_of_node("process_attribution_available"), NODE),
            series=f"gpuslice_process_attribution_available{{{ON_NODES}}}",
            height=6,
        ),
        listing(
            "What cannot be told",
            "A row for each thing that is not known or does not add up, and how much of it; doctor says why. "
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
    count = f"gpuslice_gpu_xid_errors_total{{{ON_GPUS}}} > 0"
    code = ("mig_uuid", "xid")
    return (
        listing(
            "XID errors",
            "The last error of each GPU and code, and how many since the exporter's start. What a code means "
            "stands in docs/xids.md. Unknown: events are not waited for.",
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
            "Passes that failed",
            "Passes of sources that failed since the exporter's start, by reason.",
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
            "Calls into the driver that failed since the exporter's start. Without a UUID: about no GPU, or "
            "one that cannot be named.",
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
        timeline(
            "Time in the driver",
            "percentunit",
            "Share of time that calls into the driver take, by group of readings.",
            Query(
                by_node(f"rate(gpuslice_nvml_call_seconds_total{{{ON_NODES}}}[$__rate_interval])", "group"),
                f"{NODE} · {{{{group}}}}",
            ),
            stacked=True,
        ),
    )


def _exporter() -> tuple[Panel, ...]:
    return (
        timeline(
            "Processor of the exporter",
            "percentunit",
            "Processor time that the exporter itself takes; 100 % is one core.",
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
