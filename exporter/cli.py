"""The command line: which command, with which settings."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from exporter import __version__
from exporter.commands import ADVISE, HELP, INSPECT, IS, OPTIONS, TRANSLATE, USAGE, WAITING, WHY
from exporter.commands.node import node
from exporter.config import Settings, SettingsError, add_options, load_settings
from exporter.config.commands import ALL_COMMANDS
from exporter.output import print_text, set_up_logging, write_whole

if TYPE_CHECKING:
    from exporter.doctor import Report
    from exporter.doctor.silent import SilentReport

# A command imports its modules when it runs, so that --help and --version, and other commands, start fast.

USAGE_ERROR = 2
DEFAULT_COMMAND = "serve"
REPORTING_COMMANDS = frozenset({"snapshot", "doctor", "record", INSPECT, ADVISE, IS, WHY, WAITING, USAGE})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 is an invalid value."""
    arguments = _parse(list(sys.argv[1:] if argv is None else argv))
    try:
        settings = load_settings(vars(arguments), os.environ)
        set_up_logging(_log_level(arguments.command, settings), settings.log_format)
        import asyncio  # noqa: PLC0415 - with TLS it takes a tenth of a second

        return asyncio.run(COMMANDS[arguments.command](arguments, settings))
    except SettingsError as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return USAGE_ERROR
    except BrokenPipeError:
        # The reader of our output has closed the pipe; this is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def kubectl_main() -> int:
    """Run as a kubectl plugin: without a command, inspect the cluster."""
    argv = sys.argv[1:]
    return main(argv if argv and argv[0] in {*COMMANDS, "--version"} else [INSPECT, *argv])


def _log_level(command: str, settings: Settings) -> str:
    """Return the log level; commands whose output reports all problems log errors only."""
    reports = command in REPORTING_COMMANDS and settings.log_level in ("info", "warning")
    return "error" if reports else settings.log_level


async def _serve(_arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.serve import serve  # noqa: PLC0415 - see above

    async with node(settings, None) as this:
        await serve(this, lambda url: logging.getLogger("exporter").info("serving %s", url))
    return 0


async def _demo(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.list:
        from exporter.demo.scenario.catalog import scenarios  # noqa: PLC0415 - see above

        _print_line("\n".join(f"{entry.name:<18} {entry.description}" for entry in scenarios()))
        return 0
    from exporter.commands.serve import serve  # noqa: PLC0415 - see above

    async with node(settings, arguments.scenario, arguments.seed) as fake:
        await serve(fake, lambda url: _print_line(f"A simulated GPU node ({arguments.scenario}): {url}"))
    return 0


async def _snapshot(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.snapshot import snapshot  # noqa: PLC0415 - see above

    async with node(settings, arguments.scenario) as this:
        print_text(await snapshot(this, arguments.format))
    return 0


async def _doctor(arguments: argparse.Namespace, settings: Settings) -> int:
    # A flag only: a variable may be set for the commands of the cluster, on a node too.
    asked = arguments.files or "prometheus_url" in arguments
    report = await (_silent if asked else _node_report)(arguments, settings)
    _print_line(json.dumps(report.as_dict(), indent=2) if arguments.json else report.as_text())
    return report.exit_code


async def _node_report(arguments: argparse.Namespace, settings: Settings) -> "Report | SilentReport":
    from exporter.commands.snapshot import poll_once  # noqa: PLC0415 - see above
    from exporter.doctor.checks import examine  # noqa: PLC0415 - see above

    async with node(settings, arguments.scenario) as this:
        return examine(*await poll_once(this), this.settings)


async def _silent(arguments: argparse.Namespace, settings: Settings) -> "Report | SilentReport":
    if arguments.scenario:
        raise SettingsError("--scenario is a node: it cannot be combined with --prometheus-url or files")
    with _needs_parser("doctor on rules"):
        from exporter.commands.silent import find_silent  # noqa: PLC0415 - see above

    return await find_silent(arguments.files, settings)


@contextmanager
def _needs_parser(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "promql_parser":
            raise
        raise SettingsError(f"{command} needs: pip install 'gpuslice-exporter[translate]'") from None


async def _record(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.record import record  # noqa: PLC0415 - see above

    async with node(settings, arguments.scenario) as this:
        text = await record(this, mask=not arguments.unmasked)
    if arguments.output is None:
        print_text(text)
    else:
        try:
            write_whole(arguments.output, text)
        except OSError as error:
            raise SettingsError(f"--output: cannot write {arguments.output}: {error.strerror}") from None
    return 0


async def _hub(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.commands import hub  # noqa: PLC0415 - see above

    await hub(
        settings,
        lambda url: logging.getLogger("exporter").info("serving %s", url),
        refresh=arguments.refresh,
        window=arguments.window,
        node_url_template=arguments.node_url_template,
        namespaces=arguments.namespace,
    )
    return 0


async def _inspect(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.commands import inspect_cluster  # noqa: PLC0415 - see above

    if arguments.advice:
        if arguments.nodes or arguments.details:
            raise SettingsError("--advice is by workload: it cannot be combined with nodes or --details")
        return await _advise(arguments, settings)
    return await inspect_cluster(
        settings,
        arguments.nodes,
        arguments.namespace,
        output=arguments.output,
        details=arguments.details,
    )


async def _advise(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.commands import advise_cluster  # noqa: PLC0415 - see above

    return await advise_cluster(settings, arguments.namespace, output=arguments.output)


async def _is(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.commands import describe_pod  # noqa: PLC0415 - see above

    return await describe_pod(
        settings,
        *arguments.pod,
        output=arguments.output,
        node_url_template=arguments.node_url_template,
    )


async def _why(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.waiting_commands import why  # noqa: PLC0415 - see above

    return await why(settings, *arguments.pod, output=arguments.output)


async def _waiting(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.waiting_commands import list_waiting  # noqa: PLC0415 - see above

    return await list_waiting(settings, arguments.namespace, output=arguments.output)


async def _usage(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.fleet.usage.command import print_usage  # noqa: PLC0415 - see above

    return await print_usage(
        settings,
        month=arguments.month,
        since=arguments.since,
        by=arguments.by,
        output=arguments.format,
    )


async def _metrics(arguments: argparse.Namespace, settings: Settings) -> int:
    from exporter.commands.metrics import metrics_markdown, node_series  # noqa: PLC0415 - see above
    from exporter.commands.snapshot import poll_once  # noqa: PLC0415 - see above

    if not arguments.count:
        print_text(metrics_markdown())
        return 0
    async with node(settings, arguments.scenario) as this:
        snapshot, _ = await poll_once(this)
    print_text(node_series(snapshot, this.settings))
    return 0


async def _translate(arguments: argparse.Namespace, _settings: Settings) -> int:
    with _needs_parser("translate"):
        from exporter.commands.translate import translate  # noqa: PLC0415 - see above

    return translate(
        arguments.files, arguments.to, arguments.keep, whole=arguments.whole, in_place=arguments.in_place
    )


def _print_line(text: str) -> None:
    print_text(f"{text}\n")


COMMANDS = {
    "serve": _serve,
    "demo": _demo,
    "snapshot": _snapshot,
    "doctor": _doctor,
    "record": _record,
    "metrics": _metrics,
    TRANSLATE: _translate,
    "hub": _hub,
    INSPECT: _inspect,
    ADVISE: _advise,
    IS: _is,
    WHY: _why,
    WAITING: _waiting,
    USAGE: _usage,
}


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the long usage of a command."""

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
    argv = _with_command(argv)
    for name, text in HELP.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        # The options of the other commands are not needed.
        if name == argv[0]:
            _add_flags(command, name)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        prog = f"{parser.prog} {argv[0]}"
        parser.exit(USAGE_ERROR, f"{prog}: {_objection(unknown)}; see {prog} --help\n")
    return arguments


def _add_flags(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of a command; only its own are in its usage, the settings have headings."""
    OPTIONS.get(command, lambda _: None)(parser)
    own = parser.format_usage().removeprefix("usage: ").rstrip()
    add_options(parser, command)
    if command in ALL_COMMANDS:
        parser.usage = f"{own} [OPTION ...]"


def _objection(unknown: Sequence[str]) -> str:
    """Return what is wrong with words that a command does not have: which commands have such an option."""
    flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    others = ", ".join(name for name in HELP if flag in _flags_of(name))
    return f"{flag} is an option of {others}" if others else f"unrecognized arguments: {' '.join(unknown)}"


def _flags_of(command: str) -> Collection[str]:
    parser = _Parser()
    _add_flags(parser, command)
    return parser._option_string_actions  # noqa: SLF001 - nothing public lists them


def _with_command(argv: list[str]) -> list[str]:
    """Return the arguments with a command; the default is ``serve``."""
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version")):
        return [DEFAULT_COMMAND, *argv]
    return argv
