"""``metrics``: the reference page of the exported series, and the number of series of a node in each set."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain

from exporter import metrics
from exporter.config import Settings
from exporter.exposition import Exposition, SelfMetrics
from exporter.metrics import AnyFamily, Family
from exporter.metrics.dcgm import DCGM, DEFAULT, LEGACY, DcgmVersion
from exporter.metrics.dcgm.dialects import RENAMED
from exporter.metrics.selection import SETS, Selection
from exporter.model import Snapshot

_INTRODUCTION = """\
# Exported series

*Made from the tables in `exporter/metrics/` by `gpuslice-exporter metrics`.*

Units are base units, and a ratio of 1 is a whole physical GPU. An unknown value is absent; a 0 was measured.
Every series of a device has the labels `node` and `gpu` (the NVML index):

```promql
gpuslice_container_memory_used_bytes{node="a", gpu="3"} > gpuslice_container_memory_entitled_bytes
```

Further properties, such as the model, are labels of the info series. Scrape with `honor_labels: true`.

The column *set* has the smallest set of `--metric-set` with the series: `core` (the default) has what the
alerts and the Fleet, Node and Tenant dashboards need, `standard` also what the Hardware dashboard shows,
`full` all. `--metric-allowlist` adds single series, and `--metric-denylist` leaves some out.
`gpuslice-exporter metrics --count` prints how many of each this node has in each set. Readings of NVIDIA
GPUs that no chosen series needs are not read ([which](api.md#snapshot)).

The column *where* has the GPUs and modes that a series is available on. `gpuslice-exporter doctor` reports
which series this node has, and why others are missing.
"""

_SECTIONS: Mapping[str, tuple[str, Sequence[AnyFamily]]] = {
    "Containers": (
        "One entity per container and device that it holds or uses; `mig_uuid` only on MIG devices.",
        metrics.CONTAINER,
    ),
    "GPUs": ("One entity per physical GPU.", metrics.GPU),
    "MIG devices": ("One entity per MIG device; `uuid` is that of its GPU.", metrics.MIG),
    "vGPUs": ("One entity per vGPU of this host; `uuid` is that of its GPU.", metrics.VGPU),
    "Pods": (
        "One entity per pod with a container above and a label of advice or that `--pod-labels` selects.",
        metrics.POD,
    ),
    "Node": ("The node as a whole.", metrics.NODE),
    "Collectors": ("One entity per source of data.", metrics.COLLECTOR),
}

_DCGM_TEXT = """\
The same readings under the names, labels and units of dcgm-exporter, so that dashboards and alerts for it
keep working. The column *set* has the value of `--dcgm-names` that includes a series: `default` is the names
in dcgm-exporter's default-counters.csv, `all` is all of them; `off` omits them, and `only` omits the GPUs,
MIG devices and containers above instead. `--dcgm-version` has the names of dcgm-exporter up to 4.8 (the
default), from 4.9 on, or both: the column *from 4.9 on* has the new name of a renamed series, in base units.

Labels: `gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`, `Hostname`; on MIG GPU instances `GPU_I_PROFILE`
and `GPU_I_ID`; `DCGM_FI_DRIVER_VERSION` if known; `container`, `namespace` and `pod` if exactly one container
holds the device; `hpc_job` if exactly one job has it by the files in `--job-mapping-dir`. New names have
`hostname` and `DCGM_FI_SYSTEM_DRIVER_VERSION` ([labels](labels.md#the-node-under-dcgms-names)). AMD GPUs have
no such names.

Each device has one series, whatever the number of its holders. In MIG mode, memory, BAR1 and profiling ratios
are those of the GPU instances, or of the GPU if no instance has them; XID errors are those of the instance
that caused them, or of the GPU; all other readings are of the GPU. Ratios of an instance are relative to that
instance, as in DCGM.

Types are those of dcgm-exporter, except that rates (`DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL`,
`DCGM_FI_DEV_PCIE_TX_THROUGHPUT` and `_RX_`) and `DCGM_FI_DEV_RETIRED_PENDING`, which is 0 or 1, are gauges.
In OpenMetrics, counters without the suffix `_total` have the type unknown, so that their names stay the same.
`DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL` has parts of a joule too; DCGM prints whole ones.
`DCGM_EXP_CLOCK_EVENTS_COUNT` is missing: it counts DCGM's own samples.
"""

_LEGACY_TEXT = """\
`--dcgm-names legacy` has the default names and these, the names of dcgm-exporter 1.x. Labels: `gpu`, `uuid`;
`pod_name`, `pod_namespace` and `container_name` if exactly one container holds the GPU. They are of whole
GPUs, in MIG mode too.
"""

_SELF_TEXT = "`process_*` and `python_info` are the exporter's own resource usage and Python version."


def metrics_markdown() -> str:
    """Return the reference page as Markdown."""
    return "\n".join(chain(_INTRODUCTION.splitlines(), _native(), _dcgm(), _self()))


def dialect_table() -> str:
    """Return the table of DCGM's old and new names as Markdown."""
    rows = (
        (_code(field.old), _code(field.new), _conversion(field.factor), "yes" if field.since else "")
        for field in RENAMED
    )
    return "\n".join((*_table(("old name", "new name", "new value", "by default"), rows), ""))


def _conversion(factor: Fraction) -> str:
    powers = {Fraction(10**6): "10^6", Fraction(2**20): "2^20"}
    if factor == 1:
        return "the same"
    if factor < 1:
        return f"\N{DIVISION SIGN} {1 / factor}"
    return f"\N{MULTIPLICATION SIGN} {powers.get(factor, f'{factor.numerator:,}')}"


def node_series(snapshot: Snapshot, settings: Settings) -> str:
    """Return the number of series of a node in each set as text: sums, and a line for each family."""
    sets = [Exposition(Selection(metric_set=name, dcgm_names="off")).counts(snapshot) for name in SETS]
    dcgm = Exposition(Selection(dcgm_names="all", dcgm_version="both")).counts(snapshot)

    def under_names(families: Mapping[DcgmVersion, Sequence[AnyFamily]], version: DcgmVersion) -> int:
        return sum(dcgm.get(family.name, 0) for family in families[version])

    default, every = (under_names(families, settings.dcgm_version) for families in (DEFAULT, DCGM))
    sizes = [sum(counts.values()) for counts in sets]
    rows = [
        (f"--metric-set {name}", f"{size:,}", "" if number == 0 else f"{size - sizes[number - 1]:,} more")
        for number, (name, size) in enumerate(zip(SETS, sizes, strict=True))
    ]
    rows += [
        ("--dcgm-names default", f"{default:,}", "with each set"),
        ("--dcgm-names all", f"{every:,}", f"{every - default:,} more"),
    ]
    rows += [
        (f"--dcgm-version {version}", f"{under_names(DEFAULT, version):,}", "with --dcgm-names default")
        for version in DEFAULT
    ]
    chosen = sum(Exposition(Selection.of(settings)).counts(snapshot).values())
    title = f"{chosen:,} series of node {snapshot.node.name} on /metrics with these settings"
    families = [
        (family.name, *(str(counts.get(family.name, 0)) for counts in sets))
        for family in metrics.FAMILIES
        if family.name in sets[-1]
    ]
    return "\n".join((title, "", *_columns(rows), "", *_columns([("family", *SETS), *families]), ""))


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines; the first column is a name, the others are numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        yield "  ".join((name.ljust(widths[0]), *cells)).rstrip()


def _native() -> Iterator[str]:
    for title, (text, families) in _SECTIONS.items():
        labels = ", ".join(map(_code, metrics.LEVEL_LABELS[families[0].level])) or "none"
        yield from ("", f"## {title}", "", f"{text} Labels: {labels}.", "")
        yield from _families(families)


def _dcgm() -> Iterator[str]:
    default = {family.name for family in DEFAULT["4.8"]}
    new_names = {
        field.old: _code(field.new) + (" (`default`)" if field.since and field.old not in default else "")
        for field in RENAMED
    }
    yield from ("", "## DCGM names", "", *_DCGM_TEXT.splitlines(), "", *_families(DCGM["4.8"], new_names))
    yield from ("", "### Version 1", "", *_LEGACY_TEXT.splitlines(), "", *_families(LEGACY))


def _self() -> Iterator[str]:
    own = (metric for metric in SelfMetrics().registry.collect() if metric.name.startswith("gpuslice_"))
    rows = (
        (_code(metric.name + ("_info" if metric.type == "info" else "")), metric.type, metric.documentation)
        for metric in own
    )
    yield from ("", "## The exporter itself", "")
    yield from _table(("series", "type", "meaning"), rows)
    yield from ("", _SELF_TEXT, "")


def _families(families: Iterable[AnyFamily], new_names: Mapping[str, str] | None = None) -> Iterator[str]:
    """Return the table of families, with a column of new names if there are some."""
    rows = (
        (
            _code(family.name),
            family.type,
            " ".join(map(_code, family.labels)),
            _set_of(family),
            *(() if new_names is None else (new_names.get(family.name, ""),)),
            family.help,
            metrics.GROUPS[family.group].where if family.group else "",
        )
        for family in families
    )
    new = () if new_names is None else ("from 4.9 on",)
    return _table(("series", "type", "further labels", "set", *new, "meaning", "where"), rows)


def _set_of(family: AnyFamily) -> str:
    """Return the set of a family; of one of which core has a part, the label values that core has."""
    if family in LEGACY:
        return "legacy"
    if family in DCGM["4.8"]:
        return "default" if family in DEFAULT["4.8"] else "all"
    if isinstance(family, Family) or family.in_core is None:
        return family.of_set
    parts = (" ".join(values) for values in sorted(family.in_core))
    return f"core: {', '.join(parts)}; standard: all"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    escaped = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {escaped} |"


def _code(text: str) -> str:
    return f"`{text}`"
