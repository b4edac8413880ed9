"""The page of docs about the alerts: its tables are made from the code."""

import re
from collections.abc import Iterator

from alerts.grouping import alert_groups
from alerts.model import Alert, Group
from alerts.thresholds import Thresholds

_INTRODUCTION = """\
# Alerts

*Made from the code in `alerts/` by `make docs`.*

How to install them: [prometheus.md](prometheus.md). Alerts stand on the recording rules, so load both files.

Each alert says in its description what is wrong, where, whom it concerns and what to do next, and links to
its runbook and to a dashboard. What is not known is never alerted on as if it were 0: where a device
has no meter, or the exporter cannot see something, alerts that need it keep silent, and the group
*exporter* says what is missing.

**critical**: somebody should come; work is lost or a device cannot be used. **warning**: somebody should
look at it today. **info**: waste and advice, to be read at leisure.

## Before the first alert

What the commands in the runbooks need:

- `runbook_url` and `grafana_url` of your own ([below](#other-numbers)): without the second, links to
  dashboards begin at `/d/` and lead nowhere.
- `kubectl gpuslice` on the `PATH`, and `GPUSLICE_PROMETHEUS_URL` set ([fleet.md](fleet.md#in-a-terminal)).
- root on the node for `nvidia-smi`, `journalctl` and `fuser`. With the GPU Operator `nvidia-smi` may be in
  the driver's pod only.

Placeholders are the alert's labels, and are replaced together with their brackets: `<node>`, `<namespace>`,
`<pod>` (the tenant's), `<gpu>` (its index, as `nvidia-smi -i` takes it), `<uuid>`, `<mig_uuid>`,
`<instance>`, `<xid>`. The pod of the exporter is none of them:

```console
$ kubectl -n gpuslice get pods -o wide --field-selector spec.nodeName=<node>
$ kubectl -n gpuslice port-forward <exporter-pod> 9836    # the page of the node: http://localhost:9836/
```

*holds* is how long it must be so before the alert fires; a dash means that the expression looks back by
itself. *Slanted words* stand for the labels of the alert, an ellipsis for its figure.
"""

_TITLES = {
    "gpuslice-alerts-exporter": "The exporter, and what it sees",
    "gpuslice-alerts-hardware": "Hardware and driver",
    "gpuslice-alerts-sharing": "Sharing and waste",
    "gpuslice-alerts-sharing-daily": "Waste over a day",
    "gpuslice-alerts-capacity": "Capacity",
}

_REST = """\
## Other numbers

Every number stands in [`alerts/thresholds.toml`](../alerts/thresholds.toml), with what it means; runbooks
name those of their alert, such as `[sharing] idle_after`. Put those that you want otherwise into a file of
your own, and write the rules anew in a checkout of this repository:

```toml
# mine.toml
[rules]
runbook_url = "https://wiki.example/gpus/runbooks"
grafana_url = "https://grafana.example"

[sharing]
idle_after = "30m"
fair_share_ratio = 1.2
```

```console
$ make rules    # once: it makes .venv
$ .venv/bin/python -m alerts --thresholds mine.toml --output DIR
```

What is not in your file keeps its number. A key that does not exist is an error, so a file from an older
release cannot silently do nothing. `idle_after` changes the recording rules too, and so what dashboards
call idle.

## Labels

All alerts have `severity`, and `cluster` where the targets have it. Most have `job` and `instance`, the
exporter that tells it; alerts on XIDs have not, since they outlive it. Besides they have what they are about:

| alert about | labels |
| --- | --- |
| a node, its exporter | `node`, or `instance` where the node is not known |
| a GPU or MIG device | `node`, `gpu`, `model`, `uuid`, and `mig_uuid` |
| a container on a device | these, and `namespace`, `pod`, `container`: the tenant's, not the exporter's |
| a namespace | `namespace` |

A GPU that was lost before it could tell its name has `node` and `uuid`, and neither `gpu` nor `model`.

## Routing

[prometheus.md](prometheus.md#alertmanager) has a whole configuration of Alertmanager: alerts with the
`namespace` of a tenant go to its channel, critical ones to whoever is on call, those for information into a
digest. It has these inhibitions:

```yaml
inhibit_rules:
  # Where no exporter is heard of, each node would say the same.
  - source_matchers: ['alertname = "GpuSliceExporterAbsent"']
    target_matchers: ['alertname =~ "GpuSlice(ExporterDown|NodeWithoutExporter)"']
    equal: [cluster]
  # A driver that is gone is a source that fails.
  - source_matchers: ['alertname = "GpuSliceDriverGone"']
    target_matchers: ['alertname = "GpuSliceCollectorFailing"', 'collector =~ "nvml|amd"']
    equal: [cluster, node, collector]
  # What else is said of a GPU that does not answer is no news, but for what says why.
  - source_matchers: ['alertname = "GpuSliceGpuLost"']
    target_matchers:
      - 'alertname =~ "GpuSlice.+"'
      - 'alertname !~ "GpuSlice(GpuLost|Xid.+|RecoveryActionNeeded)"'
    equal: [cluster, uuid]
  # The repair that waits is done by the reset or restart that the error asks for.
  - source_matchers: ['alertname =~ "GpuSliceXidNeeds(Reset|Reboot)"']
    target_matchers: ['alertname = "GpuSliceRepairPending"']
    equal: [cluster, uuid]
```

- Do not inhibit XIDs by GpuLost: they are the reason of the loss. Nor RecoveryActionNeeded by an XID: the
  driver may ask for more than the code does.
- Labels that both alerts lack count as equal, so one in `equal` must be on every source, as `uuid` is here.
- Some need no inhibition, since one takes the place of the other by itself: HolderIdleHoldingMemory that of
  HolderIdle, SharedMemoryPressure that of SharedMemoryWillExhaust.
- Waste is often meant: a silence with `namespace="…"` and
  `alertname=~"GpuSlice(Holder.+|NamespaceWaste|SliceUnderused)"` leaves alerts about faults alone.

## What is not alerted on

- **A busy GPU.** It is what a GPU is for. Only who is in whose way is told (NoisyNeighbour).
- **Full memory of a GPU or MIG device with one holder**, or whose holders all have limits that fit:
  frameworks take it at start. Only where one can take it from another it matters (SharedMemoryPressure).
- **Compute beyond a notional share.** What others leave is there to be used.
- **Power at its cap**, and clocks below their highest: the ordinary state of a GPU that works. Heat and
  hardware that slow it down are told.
- **XIDs of the class *notice*** ([xids.md](xids.md)): nothing is wrong by these alone. Faults of an
  application are told where others share the GPU with it, or where they come in numbers.
- **Memory of nobody** in small amounts: the driver, MPS and contexts need some. AttributionDegraded tells
  where it becomes a large part, which is a matter of the exporter's view first.
- **GPUs that nobody holds**, but for MIG instances: that is what a scheduler's own measures and the
  dashboards show.
"""

_HEAD = "| alert | severity | holds | what it says |\n| --- | --- | --- | --- |"
_ACTION = re.compile(r"\{\{ (.*?) \}\}")
_LABEL = re.compile(r"(?:with |if |or )?\$labels\.(\w+)")
_OPENS = ("with ", "if ", "range ")
_FIGURE = "…"


def alerts_markdown(numbers: Thresholds) -> str:
    """Write the page: a table for each group, and how to change, route and read the alerts."""
    tables = "\n".join(_table(group) for group in alert_groups(numbers))
    return f"{_INTRODUCTION}\n{tables}\n{_REST}"


def said(summary: str) -> str:
    """Write a template of a summary for readers: *label* for a label, an ellipsis for a figure.

    Of several branches it is the first.
    """
    found: list[str] = []
    # Of each block: what its dot stands for, and whether another branch of it has been written.
    blocks: list[tuple[str, bool]] = []
    for index, part in enumerate(_ACTION.split(summary)):
        if index % 2 and part.startswith(_OPENS):
            blocks.append((_named(part), False))
        elif index % 2 and part.startswith("else"):
            blocks[-1] = (blocks[-1][0], True)
        elif index % 2 and part == "end":
            blocks.pop()
        elif not any(written for _, written in blocks):
            found.append(part if index % 2 == 0 else blocks[-1][0] if part == "." else _named(part))
    return "".join(found).replace(f"{_FIGURE}B", _FIGURE)


def _named(action: str) -> str:
    label = _LABEL.match(action)
    return f"*{label[1]}*" if label else _FIGURE


def _table(group: Group) -> str:
    rows = "\n".join(_rows(group))
    return f"## {_TITLES[group.name]}\n\n{_HEAD}\n{rows}\n"


def _rows(group: Group) -> Iterator[str]:
    for alert in group.rules:
        if isinstance(alert, Alert):
            link = f"[{alert.name}](../alerts/runbooks/{alert.full_name}.md)"
            yield f"| {link} | {alert.severity} | {alert.hold or '-'} | {said(alert.summary)} |"
