"""Options of the commands on a cluster."""

import argparse
import re
from collections.abc import Callable
from typing import Any

from exporter.config.parse import duration

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


def hub_options(parser: argparse.ArgumentParser) -> None:
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


def inspect_options(parser: argparse.ArgumentParser) -> None:
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


def advise_options(parser: argparse.ArgumentParser) -> None:
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


def is_options(parser: argparse.ArgumentParser) -> None:
    _add_pod(parser, "the pod")
    _add_node_url(parser)
    parser.epilog = _PROMETHEUS


def why_options(parser: argparse.ArgumentParser) -> None:
    _add_pod(parser, "the pod that waits")
    parser.epilog = _KUBERNETES


def waiting_options(parser: argparse.ArgumentParser) -> None:
    _add_namespace(parser, "list the pods in this namespace only")
    parser.add_argument("--output", "-o", choices=_FORMATS, default="text", help="Default: text")
    parser.epilog = _KUBERNETES


def usage_options(parser: argparse.ArgumentParser) -> None:
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
