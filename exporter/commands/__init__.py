"""The commands of the command line: the help text of each, and its own options."""

import argparse
from pathlib import Path

from exporter.commands import cluster

INSPECT, ADVISE, TRANSLATE, IS = "inspect", "advise", "translate", "is"
WHY, WAITING = "why", "waiting"
USAGE = "usage"
DEMO_SCENARIO = "showcase"


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", metavar="NAME|FILE", help="use a simulated node instead of this one")


def _demo_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        default=DEMO_SCENARIO,
        help=f"the simulated node, by name or as a JSON file. Default: {DEMO_SCENARIO}",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the loads; the same seed repeats them")
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")


def _snapshot_options(parser: argparse.ArgumentParser) -> None:
    from exporter.commands.snapshot import FORMATS  # noqa: PLC0415 - imports the poller

    parser.add_argument("--format", choices=sorted(FORMATS), default="text", help="Default: text")
    _add_scenario(parser)


def _doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="list the expressions in rules, dashboards and triggers that go silent when dcgm-exporter is "
        "upgraded to 4.9, instead of checking this node; - is stdin",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    _add_scenario(parser)


def _metrics_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--count", action="store_true", help="poll once and print the number of series of this node by set"
    )
    _add_scenario(parser)


def _record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FILE", help="write here instead of to the terminal")
    parser.add_argument(
        "--unmasked", action="store_true", help="keep real UUIDs, serials and names; do not share the result"
    )
    _add_scenario(parser)


def _translate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="rules, dashboards or triggers, as YAML or JSON; - is stdin"
    )
    parser.add_argument(
        "--to",
        choices=("dcgm-4.9", "gpuslice"),
        default="dcgm-4.9",
        help="the new names: those of dcgm-exporter 4.9, or our own series. Default: dcgm-4.9",
    )
    parser.add_argument(
        "--keep", action="append", default=[], metavar="NAME", help="leave a series as it is; repeatable"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--print", dest="whole", action="store_true", help="print the file instead of a diff")
    how.add_argument("--in-place", action="store_true", help="change the files instead of printing a diff")


HELP = {
    "serve": "poll this node and serve the page and /metrics (the default)",
    "demo": "the same on a simulated node",
    "snapshot": "poll once and print the result",
    "doctor": "check what can be read here, what is missing, and how to fix it; "
    "exit code 0: all OK, 1: something degraded, 3: something missing",
    "record": "write a scenario of this node, with UUIDs, serials and names masked",
    "metrics": "print the table of all series as Markdown, or count those of this node",
    TRANSLATE: "translate rules, dashboards and KEDA triggers from DCGM's old names; prints a diff; "
    "exit code 0: done, 1: something is not translated, 2: a file is not valid",
    "hub": "serve the page of the whole cluster, with data from a Prometheus",
    INSPECT: "print the GPUs of the cluster, with held and used amounts, from a Prometheus",
    ADVISE: "print which slice would fit each workload of the cluster, from seven days in a Prometheus",
    IS: "print what a pod holds and uses of which GPU, from a Prometheus; exit code 0: it holds or uses one, "
    "1: something could not be read, 3: it held one, 4: no such pod is known to have held one",
    WHY: "print why a pod waits, and what is nearest to help",
    WAITING: "print the pods of the cluster that wait for a device, and what is nearest to help each",
    USAGE: "print the GPU-hours that each namespace or team held and used in a month, and where the others "
    "went, from a Prometheus",
}
OPTIONS = {
    "demo": _demo_options,
    "snapshot": _snapshot_options,
    "doctor": _doctor_options,
    "record": _record_options,
    "metrics": _metrics_options,
    TRANSLATE: _translate_options,
    "hub": cluster.hub_options,
    INSPECT: cluster.inspect_options,
    ADVISE: cluster.advise_options,
    IS: cluster.is_options,
    WHY: cluster.why_options,
    WAITING: cluster.waiting_options,
    USAGE: cluster.usage_options,
}
