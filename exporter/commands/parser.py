"""Parsing of the command line."""

import argparse
from collections.abc import Collection, Sequence
from typing import NoReturn

from exporter import __version__
from exporter.commands import HELP, OPTIONS
from exporter.config import add_options
from exporter.config.commands import ALL_COMMANDS

DEFAULT_COMMAND = "serve"
USAGE_ERROR = 2


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the long usage of a command."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse(argv: list[str]) -> argparse.Namespace:
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
