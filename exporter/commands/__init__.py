"""The commands of the command line: the help text of each, and its own options."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.config.parse import duration

INSPECT, ADVISE, TRANSLATE, IS = "inspect", "advise", "translate", "is"
WHY, WAITING = "why", "waiting"
USAGE = "usage"
DEMO_SCENARIO = "showcase"
_FORMATS = ("text", "json", "csv")
# Names as Kubernetes allows them.
_POD = re.compile(r"(?P<namespace>[a-z0-9][a-z0-9-]{0,62})/(?P<pod>[a-z0-9][a-z0-9.-]{0,252})")
_PROMETHEUS = (
    "Reads from the Prometheus that scrapes the nodes: --prometheus-url or GPUSLICE_PROMETHEUS_URL. To reach "
    "one inside the cluster: kubectl -n monitoring port-forward svc/prometheus-operated 9090, and then "
    "--prometheus-url http://localhost:9090"
)

_KUBERNETES = (
    "Reads pods and nodes from the Kubernetes API, with the kubeconfig of kubectl, and what is known of GPUs "
    "from the Prometheus that scrapes the nodes (--prometheus-url). Without the API, they come from "
    "kube-state-metrics, as far as it reports them. Nothing is changed."
)


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


def _duration(shortest: str, longest: str) -> Callable[[str], float]:
    kind = duration(shortest, longest)

    def parse(text: str) -> float:
        try:
            seconds: float = kind.parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind.allowed}") from None
        return seconds

    return parse


def _names(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name, or several with commas")
    return names


def _add_namespace(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--namespace",
        "-n",
        action="extend",
        type=_names,
        default=[],
        metavar="NAMESPACE",
        help=f"{what}. Repeatable, or several with commas. Default: all",
    )


def _hub_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--refresh",
        type=_duration("1s", "1h"),
        default=30.0,
        metavar="DURATION",
        help="time between two reads of the cluster; longer if a read takes longer. Default: 30s",
    )
    parser.add_argument(
        "--window",
        type=_duration("1h", "720h"),
        default=86400.0,
        metavar="DURATION",
        help="time over which GPU-hours are summed. Default: 24h",
    )
    _add_node_url(parser)
    _add_namespace(parser, "show the holders in this namespace only; sums of nodes stay those of all")


def _add_node_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-url-template",
        default="http://{instance}/",
        metavar="URL",
        help="URL of a node's page, with the placeholders {instance}, {node}, {cluster} and {job}. "
        "Default: http://{instance}/",
    )


def _inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "nodes", nargs="*", metavar="NODE", help="only these nodes, with their GPUs. Default: all"
    )
    parser.add_argument(
        "--details", action="store_true", help="show every container that holds or uses a GPU"
    )
    parser.add_argument(
        "--advice",
        action="store_true",
        help="show which slice would fit each workload, as the command advise",
    )
    _add_namespace(parser, "show the containers in this namespace only; sums of nodes stay those of all")
    parser.add_argument(
        "--output",
        "-o",
        choices=_FORMATS,
        default="text",
        help="csv has nodes; with --details or --namespace, containers. Default: text",
    )
    parser.epilog = _PROMETHEUS


def _advise_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "namespace",
        nargs="?",
        type=_names,
        default=(),
        metavar="NAMESPACE",
        help="one, or several with commas. Default: all namespaces",
    )
    parser.add_argument("--output", "-o", choices=_FORMATS, default="text", help="Default: text")
    parser.epilog = _PROMETHEUS


def _pod(text: str) -> tuple[str, str]:
    """Return the namespace and the name of a pod."""
    match = _POD.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/POD, such as ml/train-0")
    return match["namespace"], match["pod"]


def _add_pod(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("pod", type=_pod, metavar="NAMESPACE/POD", help=what)
    parser.add_argument("--output", "-o", choices=("text", "json"), default="text", help="Default: text")


def _is_options(parser: argparse.ArgumentParser) -> None:
    _add_pod(parser, "the pod")
    _add_node_url(parser)
    parser.epilog = _PROMETHEUS


def _why_options(parser: argparse.ArgumentParser) -> None:
    _add_pod(parser, "the pod that waits")
    parser.epilog = _KUBERNETES


def _waiting_options(parser: argparse.ArgumentParser) -> None:
    _add_namespace(parser, "list the pods in this namespace only")
    parser.add_argument("--output", "-o", choices=_FORMATS, default="text", help="Default: text")
    parser.epilog = _KUBERNETES


def _usage_options(parser: argparse.ArgumentParser) -> None:
    from exporter.fleet.usage.grouping import parse_by  # noqa: PLC0415 - see above
    from exporter.fleet.usage.period import parse_month, parse_since  # noqa: PLC0415 - with its client

    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--since",
        type=_parsed(parse_since),
        default="30d",
        metavar="TIME",
        help="hours up to the last full one, such as 12h, or days of UTC with the current one so far. "
        "Default: 30d",
    )
    when.add_argument(
        "--month",
        type=_parsed(parse_month),
        metavar="YYYY-MM",
        help="a month of UTC instead, such as 2026-10; the current one up to the last full hour",
    )
    parser.add_argument(
        "--by",
        type=_parsed(parse_by),
        default="namespace",
        metavar="GROUP",
        help="namespace, owner (needs kube-state-metrics), model, node, or label:NAME with a label of pods "
        "that --pod-labels of the exporter names. Default: namespace",
    )
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json", "focus"),
        default="table",
        help="focus is a bill in the columns of FOCUS 1.3, a row for each day, device and holder; it needs "
        "--prices. Default: table",
    )
    parser.epilog = _PROMETHEUS


def _parsed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of an argument from one that raises ValueError with what is allowed."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None

    return parse_argument


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
    "hub": _hub_options,
    INSPECT: _inspect_options,
    ADVISE: _advise_options,
    IS: _is_options,
    WHY: _why_options,
    WAITING: _waiting_options,
    USAGE: _usage_options,
}
