"""The command line: which command, with which settings."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exporter.commands import ADVISE, INSPECT, IS, TRANSLATE, USAGE, WAITING, WHY
from exporter.commands.node import node
from exporter.commands.parser import USAGE_ERROR, parse
from exporter.config import Settings, SettingsError, load_settings
from exporter.output import print_text, set_up_logging, write_whole

if TYPE_CHECKING:
    from exporter.doctor import Report
    from exporter.doctor.silent import SilentReport

# A command imports its modules when it runs, so that --help and --version, and other commands, start fast.

REPORTING_COMMANDS = frozenset({"snapshot", "doctor", "record", INSPECT, ADVISE, IS, WHY, WAITING, USAGE})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 is an invalid value."""
    arguments = parse(list(sys.argv[1:] if argv is None else argv))
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
