"""The reference page of the exported series, made from the tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from exporter.exposition.self_metrics import SelfMetrics
from exporter.metrics import COLLECTOR, CONTAINER, GPU, GROUPS, LEVEL_LABELS, MIG, NODE, POD, VGPU, AnyFamily
from exporter.metrics.dcgm import DCGM, LEGACY

_INTRODUCTION = """\
# Exported series

*Made from the tables in `exporter/metrics/` by `gpuslice-exporter metrics`.*

Units are base units, and ratios are of 1, where 1 is a whole physical GPU. A value that is not known is
absent: a 0 was observed. What describes an entity stands on its info series, to be joined:

```promql
gpuslice_container_memory_used_bytes
  * on (uuid) group_left (gpu, model) gpuslice_gpu_info
```

*Where* says which GPUs and modes have a series. What this node gives, and why not the rest, is told by
`gpuslice-exporter doctor`.
"""

_SECTIONS: Mapping[str, tuple[str, Sequence[AnyFamily]]] = {
    "Containers": (
        "One entity per container and device that it holds or uses; `mig_uuid` only on MIG devices.",
        CONTAINER,
    ),
    "GPUs": ("One entity per physical GPU.", GPU),
    "MIG devices": ("One entity per MIG device; `uuid` is the GPU that it is a part of.", MIG),
    "vGPUs": ("One entity per vGPU of this host; `uuid` is the GPU that it runs on.", VGPU),
    "Pods": (
        "One entity per pod with a container above that has a label which --pod-labels lets through.",
        POD,
    ),
    "Node": ("The node as a whole.", NODE),
    "Collectors": ("One entity per source of data.", COLLECTOR),
}

_DCGM_TEXT = """\
The same readings under the names, labels and units of dcgm-exporter, so that what was built for it keeps
working; `--dcgm-names off` leaves them out, `--dcgm-names only` leaves out the GPUs, MIG devices and
containers above. Labels: `gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`, `Hostname`; on GPU instances
of MIG `GPU_I_PROFILE` and `GPU_I_ID`; where it is known `DCGM_FI_DRIVER_VERSION`; and `container`,
`namespace` and `pod` where exactly one container holds the device; and `hpc_job` where, by the files in
`--job-mapping-dir`, exactly one job has it. AMD GPUs have no such names.

Each device is printed once, however many share it. In MIG mode the frame buffer, BAR1, and the shares of
time that a profiling meter gives are told by the GPU instances that have them, and by the GPU where none
does; XID errors by the instance that caused them, else by the GPU; everything else by the GPU, once. Shares
of time of an instance are of that instance, as in DCGM.

Types are those of dcgm-exporter, except that rates (`DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL`,
`DCGM_FI_DEV_PCIE_TX_THROUGHPUT` and `_RX_`) and `DCGM_FI_DEV_RETIRED_PENDING`, which is 0 or 1, are gauges.
Where OpenMetrics is asked for, counters are of unknown type there, so that their names stay.
`DCGM_EXP_CLOCK_EVENTS_COUNT` is not there: it counts DCGM's own samples.
"""

_LEGACY_TEXT = """\
`--dcgm-names legacy` prints these too, as dcgm-exporter 1.x did. Labels: `gpu`, `uuid`; and `pod_name`,
`pod_namespace` and `container_name` where exactly one container holds the GPU. They tell of whole GPUs, in
MIG mode too.
"""

_SELF_TEXT = """\
Besides these, `process_*` and `python_info` tell what the exporter itself consumes and runs on.
"""


def metrics_markdown() -> str:
    """Write the reference page as Markdown."""
    return "\n".join(chain(_INTRODUCTION.splitlines(), _native(), _dcgm(), _self()))


def _native() -> Iterator[str]:
    for title, (text, families) in _SECTIONS.items():
        labels = ", ".join(map(_code, LEVEL_LABELS[families[0].level])) or "none"
        yield from ("", f"## {title}", "", f"{text} Labels: {labels}.", "")
        yield from _table(
            ("series", "type", "further labels", "meaning", "where"), map(_native_row, families)
        )


def _dcgm() -> Iterator[str]:
    yield from ("", "## DCGM names", "", *_DCGM_TEXT.splitlines(), "")
    yield from _table(("series", "type", "further labels", "meaning", "where"), map(_native_row, DCGM))
    yield from ("", "### Version 1", "", *_LEGACY_TEXT.splitlines(), "")
    yield from _table(("series", "type", "further labels", "meaning", "where"), map(_native_row, LEGACY))


def _self() -> Iterator[str]:
    own = (metric for metric in SelfMetrics().registry.collect() if metric.name.startswith("gpuslice_"))
    rows = (
        (_code(metric.name + ("_info" if metric.type == "info" else "")), metric.type, metric.documentation)
        for metric in own
    )
    yield from ("", "## The exporter itself", "")
    yield from _table(("series", "type", "meaning"), rows)
    yield from ("", *_SELF_TEXT.splitlines(), "")


def _native_row(family: AnyFamily) -> tuple[str, ...]:
    where = GROUPS[family.group].where if family.group else ""
    return _code(family.name), family.type, " ".join(map(_code, family.labels)), family.help, where


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    escaped = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {escaped} |"


def _code(text: str) -> str:
    return f"`{text}`"
