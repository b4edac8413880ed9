"""The page docs/alerts.md, with tables generated from the code."""

import re
from collections.abc import Iterator

from alerts.grouping import alert_groups
from alerts.model import Alert, Group
from alerts.thresholds import Thresholds

_INTRODUCTION = """\
# Alerts

*Generated from the code in `alerts/` by `make docs`.*

How to install them: [prometheus.md](prometheus.md). Alerts use the recording rules, so load both files.

The description of an alert has the problem, its place, the affected tenants and the next step, with links to
its runbook and to a dashboard. Unknown values never count as 0: if a device has no meter, or the exporter
cannot read something, alerts that need it do not fire, and the group *exporter* reports what is missing.

**critical**: act now; work is lost or a device cannot be used. **warning**: look at it today. **info**: waste
and advice.

## Before the first alert

Requirements of the commands in the runbooks:

- your own `runbook_url` and `grafana_url` ([below](#other-numbers)): without the second, links to
  dashboards begin at `/d/` and do not work.
- `kubectl gpuslice` on the `PATH`, and `GPUSLICE_PROMETHEUS_URL` set ([fleet.md](fleet.md#in-a-terminal)).
- root on the node for `nvidia-smi`, `journalctl` and `fuser`. With the GPU Operator `nvidia-smi` may be in
  the driver's pod only.

Placeholders are the alert's labels; replace them with their brackets: `<node>`, `<namespace>`, `<pod>` (the
tenant's), `<gpu>` (its index, as for `nvidia-smi -i`), `<uuid>`, `<mig_uuid>`, `<instance>`, `<xid>`. The
exporter's pod is not a label:

```console
$ kubectl -n gpuslice get pods -o wide --field-selector spec.nodeName=<node>
$ kubectl -n gpuslice port-forward <exporter-pod> 9836    # the page of the node: http://localhost:9836/
```

*holds* is how long the condition must last before the alert fires; with a dash, the expression itself looks
back. *Slanted words* are labels of the alert, an ellipsis is its figure.
"""

_TITLES = {
    "gpuslice-alerts-exporter": "The exporter and its sources",
    "gpuslice-alerts-hardware": "Hardware and driver",
    "gpuslice-alerts-sharing": "Sharing and waste",
    "gpuslice-alerts-sharing-daily": "Waste over a day",
    "gpuslice-alerts-capacity": "Capacity",
}

_REST = """\
## Other numbers

All thresholds are in [`alerts/thresholds.toml`](../alerts/thresholds.toml), with their meaning; runbooks
name those of their alert, such as `[sharing] idle_after`. Put those that you want to change into a file of
your own, and generate the rules in a checkout of this repository:

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

Other thresholds keep their values. An unknown key is an error, so that a file from an older release does not
silently have no effect. `idle_after` also changes the recording rules, and so the idle holders of dashboards.

## Labels

All alerts have `severity`, and `cluster` if the targets have it. They do not have `job` and `instance` of the
exporter, except those about targets: an alert outlives the pod of the exporter. Further labels by subject:

| alert about | labels |
| --- | --- |
| a node, its exporter | `node`, or `instance` if the node is not known |
| a GPU or MIG device | `node`, `gpu`, `uuid`, and `mig_uuid` |
| a container on a device | these, and `namespace`, `pod`, `container`: the tenant's, not the exporter's |
| a namespace | `namespace` |

A GPU that was lost before the exporter read its index has `node` and `uuid` only. The model is in the text.

## Routing

[prometheus.md](prometheus.md#alertmanager) has a complete configuration of Alertmanager: alerts with the
`namespace` of a tenant go to its channel, critical ones to the engineer on call, those of severity info into
a digest. It has these inhibitions:

```yaml
inhibit_rules:
  # Without any exporter, each node would alert as well.
  - source_matchers: ['alertname = "GpuSliceExporterAbsent"']
    target_matchers: ['alertname =~ "GpuSlice(ExporterDown|NodeWithoutExporter)"']
    equal: [cluster]
  # A missing driver is also a failing collector.
  - source_matchers: ['alertname = "GpuSliceDriverGone"']
    target_matchers: ['alertname = "GpuSliceCollectorFailing"', 'collector =~ "nvml|amd"']
    equal: [cluster, node, collector]
  # Other alerts about a lost GPU are consequences, except those that name the cause.
  - source_matchers: ['alertname = "GpuSliceGpuLost"']
    target_matchers:
      - 'alertname =~ "GpuSlice.+"'
      - 'alertname !~ "GpuSlice(GpuLost|GpuNeeds.+|Xid.+)"'
    equal: [cluster, uuid]
  # A reboot of the node resets its GPUs.
  - source_matchers: ['alertname = "GpuSliceGpuNeedsReboot"']
    target_matchers: ['alertname = "GpuSliceGpuNeedsReset"']
    equal: [cluster, uuid]
```

- Do not inhibit XIDs, GpuNeedsReset or GpuNeedsReboot by GpuLost: they name the cause of the loss.
- Labels that both alerts lack count as equal, so a label in `equal` must be on every source, as `uuid` is
  here.
- Some need no inhibition, since one alert replaces the other: HolderIdleHoldingMemory replaces HolderIdle,
  SharedMemoryPressure replaces SharedMemoryWillExhaust.
- Waste may be intended: a silence with `namespace="…"` and
  `alertname=~"GpuSlice(Holder.+|NamespaceWaste|SliceUnderused)"` keeps alerts about faults.

## What is not alerted on

- **A busy GPU.** That is its purpose. Only a container that slows down others is reported (NoisyNeighbour).
- **Full memory of a GPU or MIG device with one holder**, or with limits of all holders that fit: frameworks
  allocate it at start. It only matters if one can take it from another (SharedMemoryPressure).
- **Compute beyond a notional share.** Unused compute is free to use.
- **Power at its cap**, and clocks below their maximum: normal for a busy GPU. Slowdown due to heat or
  hardware is reported.
- **XIDs of the class *notice*** ([xids.md](xids.md)): these alone indicate no fault. Application faults are
  reported if others share the GPU, or if there are many.
- **Unattributed memory** in small amounts: the driver, MPS and contexts need some. AttributionDegraded
  reports a large part, which is mostly a problem of the exporter's permissions.
- **GPUs without holders**, except MIG instances: see the scheduler's own metrics and the dashboards.
"""

_HEAD = "| alert | severity | holds | summary |\n| --- | --- | --- | --- |"
_ACTION = re.compile(r"\{\{ (.*?) \}\}")
_LABEL = re.compile(r"(?:with |if |or )?\$labels\.(\w+)")
_OPENS = ("with ", "if ", "range ")
_FIGURE = "…"


def alerts_markdown(numbers: Thresholds) -> str:
    """Return the page as Markdown: a table for each group, and how to change, route and read the alerts."""
    tables = "\n".join(_table(group) for group in alert_groups(numbers))
    return f"{_INTRODUCTION}\n{tables}\n{_REST}"


def said(summary: str) -> str:
    """Return a summary's template with *label* for each label and an ellipsis for each figure.

    Of several branches only the first one is kept.
    """
    parts: list[str] = []
    # Of each block: the value of its dot, and whether its first branch has ended.
    blocks: list[tuple[str, bool]] = []
    for index, part in enumerate(_ACTION.split(summary)):
        if index % 2 and part.startswith(_OPENS):
            blocks.append((_named(part), False))
        elif index % 2 and part.startswith("else"):
            blocks[-1] = (blocks[-1][0], True)
        elif index % 2 and part == "end":
            blocks.pop()
        elif not any(ended for _, ended in blocks):
            parts.append(part if index % 2 == 0 else blocks[-1][0] if part == "." else _named(part))
    return "".join(parts).replace(f"{_FIGURE}B", _FIGURE)


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
