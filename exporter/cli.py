"""The command line: which command, with which settings."""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from exporter import __version__
from exporter.commands.doctor import doctor
from exporter.commands.logs import set_up_logging
from exporter.commands.node import node
from exporter.commands.serve import serve
from exporter.commands.snapshot import FORMATS, snapshot
from exporter.metrics_docs import metrics_markdown
from exporter.settings import Settings, SettingsError, add_options, load_settings
from exporter.settings_parse import duration
from exporter.web import ListenError

USAGE_ERROR = 2
DEFAULT_COMMAND = "serve"
INSPECT = "inspect"
TELLING_COMMANDS = frozenset({"snapshot", "doctor", "record", INSPECT})
DEMO_SCENARIO = "showcase"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 is a value that cannot be used."""
    arguments = _parse(list(sys.argv[1:] if argv is None else argv))
    try:
        settings = load_settings(vars(arguments), os.environ)
        set_up_logging(_log_level(arguments.command, settings), settings.log_format)
        return asyncio.run(COMMANDS[arguments.command](arguments, settings))
    except (SettingsError, ListenError) as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return USAGE_ERROR
    except BrokenPipeError:
        # The reader of our output has seen enough; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def kubectl_main() -> int:
    """Be the plugin of kubectl: without one of the commands, inspect the cluster."""
    argv = sys.argv[1:]
    return main(argv if argv and argv[0] in {*COMMANDS, "--version"} else [INSPECT, *argv])


def _log_level(command: str, settings: Settings) -> str:
    """Keep warnings out of the way of a command whose output tells the same."""
    telling = command in TELLING_COMMANDS and settings.log_level in ("info", "warning")
    return "error" if telling else settings.log_level


async def _serve(_arguments: argparse.Namespace, settings: Settings) -> int:
    async with node(settings, None) as real:
        await serve(real, lambda url: logging.getLogger("exporter").info("serving %s", url))
    return 0


async def _demo(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.list:
        from exporter.demo.catalog import scenarios  # noqa: PLC0415 - not for the daemon

        _say("\n".join(f"{entry.name:<18} {entry.description}" for entry in scenarios()))
        return 0
    async with node(settings, arguments.scenario, arguments.seed) as fake:
        await serve(fake, lambda url: _say(f"A fake GPU node ({arguments.scenario}): {url}"))
    return 0


async def _snapshot(arguments: argparse.Namespace, settings: Settings) -> int:
    async with node(settings, arguments.scenario) as this:
        sys.stdout.write(await snapshot(this, arguments.format))
        sys.stdout.flush()
    return 0


async def _doctor(arguments: argparse.Namespace, settings: Settings) -> int:
    async with node(settings, arguments.scenario) as this:
        report = await doctor(this)
    _say(json.dumps(report.as_dict(), indent=2) if arguments.json else report.as_text())
    return report.exit_code


async def _record(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.record import record  # noqa: PLC0415 - not for the daemon

    async with node(settings, arguments.scenario) as this:
        text = await record(this, mask=not arguments.unmasked)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        try:
            arguments.output.write_text(text)
        except OSError as error:
            raise SettingsError(f"--output: cannot write {arguments.output}: {error.strerror}") from None
    return 0


async def _hub(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.hub import HubOptions, hub  # noqa: PLC0415 - not for the daemon

    options = HubOptions(
        refresh=arguments.refresh, window=arguments.window, node_url_template=arguments.node_url_template
    )
    await hub(settings, options, lambda url: logging.getLogger("exporter").info("serving %s", url))
    return 0


async def _inspect(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.inspect import inspect_cluster  # noqa: PLC0415 - not for the daemon

    return await inspect_cluster(
        settings, arguments.nodes, output=arguments.output, details=arguments.details
    )


async def _metrics(_arguments: argparse.Namespace, _settings: Settings) -> int:
    sys.stdout.write(metrics_markdown())
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


COMMANDS = {
    "serve": _serve,
    "demo": _demo,
    "snapshot": _snapshot,
    "doctor": _doctor,
    "record": _record,
    "metrics": _metrics,
    "hub": _hub,
    INSPECT: _inspect,
}


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong: the options of a command would fill the screen above it."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="gpuslice-exporter",
        description="Who holds which slice of which GPU, what it is entitled to, and what it really uses.",
        epilog="Without a command it serves. Options of a command: gpuslice-exporter COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in HELP.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        OPTIONS.get(name, lambda _: None)(command)
        add_options(command)
    return parser.parse_args(_with_command(argv))


def _with_command(argv: list[str]) -> list[str]:
    """Serve when no command is given: the DaemonSet's job needs no words."""
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version")):
        return [DEFAULT_COMMAND, *argv]
    return argv


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", metavar="NAME|FILE", help="work on a fake node instead of this one")


def _demo_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        default=DEMO_SCENARIO,
        help=f"the node to fake, by name or as a JSON file. Default: {DEMO_SCENARIO}",
    )
    parser.add_argument("--seed", type=int, default=0, help="repeat the same loads with the same number")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")


def _snapshot_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=sorted(FORMATS), default="text", help="Default: text")
    _add_scenario(parser)


def _doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
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


def _hub_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--refresh",
        type=_duration("1s", "1h"),
        default=30.0,
        metavar="DURATION",
        help="time between two looks at the cluster, or more where a look takes long. Default: 30s",
    )
    parser.add_argument(
        "--window",
        type=_duration("1m", "720h"),
        default=86400.0,
        metavar="DURATION",
        help="how far back GPU-hours are added up. Default: 24h",
    )
    parser.add_argument(
        "--node-url-template",
        default="http://{instance}/",
        metavar="URL",
        help="the page of a node, with {instance}, {node}, {cluster} and {job} in braces. "
        "Default: http://{instance}/",
    )


def _inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes. Default: all")
    parser.add_argument(
        "--details", action="store_true", help="show every container that holds or uses a GPU"
    )
    parser.add_argument("--output", "-o", choices=("text", "json"), default="text", help="Default: text")
    parser.epilog = (
        "It asks the Prometheus that scrapes the nodes: --prometheus-url or GPUSLICE_PROMETHEUS_URL. To "
        "reach one inside the cluster: kubectl -n monitoring port-forward svc/prometheus-operated 9090, and "
        "then --prometheus-url http://localhost:9090"
    )


HELP = {
    "serve": "poll this node and serve the page and /metrics (the default)",
    "demo": "the same on a fake node",
    "snapshot": "poll once and print what was found",
    "doctor": "check what can be read here, what is lost, and how to mend it; "
    "exit code 0: all well, 1: something degraded, 3: something missing",
    "record": "write a scenario of this node, with UUIDs, serials and names masked",
    "metrics": "print the table of all series as Markdown",
    "hub": "serve the page of the whole cluster, from what a Prometheus knows of its nodes",
    INSPECT: "print the GPUs of the cluster and what is held and used of them, as a Prometheus knows it",
}
OPTIONS = {
    "demo": _demo_options,
    "snapshot": _snapshot_options,
    "doctor": _doctor_options,
    "record": _record_options,
    "hub": _hub_options,
    INSPECT: _inspect_options,
}
