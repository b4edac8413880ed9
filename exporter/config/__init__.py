"""Settings: loaded from flags, the environment and the YAML file, by one table of options.

A flag overrides the environment, the environment the YAML file, and the file the default. All sources and the
defaults are text, so that one parser per option reads them all.
"""

import argparse
import socket
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from exporter.config.parse import ListenAddress, Option, SettingsError, read_options
from exporter.config.table import Settings
from exporter.documents import DocumentError, parse_text, remedy

__all__ = ["ListenAddress", "Settings", "SettingsError", "add_options", "kebab", "load_settings", "variable"]

_PREFIX = "GPUSLICE_"
_FILE = "config"  # the only option that cannot be in the file


class _Given(NamedTuple):
    """The values of an option in one source."""

    source: str  # the option as the user gave it
    texts: tuple[str, ...]


_OPTIONS: dict[str, Option] = {row.name: row.metadata["option"] for row in fields(Settings)}


def add_options(parser: argparse.ArgumentParser, command: object = None) -> None:
    """Add a flag for every option of a command; a flag that is not given is absent from the namespace."""
    for name, row in _options_of(command).items():
        text = f"{row.help} Default: {row.shown}. Also {variable(name)}."
        parser.add_argument(
            f"--{kebab(name)}",
            metavar=row.kind.metavar,
            action="append" if row.repeatable else "store",
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%").replace("`", ""),
        )


def load_settings(argv_namespace: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Return the settings of parsed flags (by field name), the environment, and the YAML file that they name.

    If ``argv_namespace`` has a ``command``, only the options of that command are known. Other entries of both
    mappings are ignored, and so are empty variables. Raises SettingsError for the first invalid value, and
    for an unknown key in the file.
    """
    options = _options_of(argv_namespace.get("command"))
    given = _from_environment(environ, options) | _from_flags(argv_namespace, options)
    given = _from_pod(environ) | _from_file(given.get(_FILE), options) | given
    values: dict[str, Any] = {"host": socket.gethostname()}
    for name, row in _OPTIONS.items():
        values[name] = _value(row, given.get(name), values)
    del values["host"]
    settings = Settings(**values)
    _check_ages(settings, given)
    _check_hostname_label(settings, given.get("dcgm_hostname_label"))
    return settings


def _options_of(command: object) -> dict[str, Option]:
    """Return the options of a command; all of them for None."""
    return {
        name: row
        for name, row in _OPTIONS.items()
        if command is None or not row.commands or command in row.commands
    }


def _from_flags(namespace: Mapping[str, object], options: Mapping[str, Option]) -> dict[str, _Given]:
    return {
        name: _Given(f"--{kebab(name)}", tuple(map(str, value if isinstance(value, list) else [value])))
        for name in options
        if (value := namespace.get(name)) is not None
    }


def _from_environment(environ: Mapping[str, str], options: Mapping[str, Option]) -> dict[str, _Given]:
    # Unknown names with our prefix are not an error: Kubernetes sets variables by the names of Services.
    return {
        name: _Given(variable(name), _several(text, row) if row.repeatable else (text,))
        for name, row in options.items()
        if (text := environ.get(variable(name), "").strip())
    }


def _several(text: str, row: Option) -> tuple[str, ...]:
    return tuple(part for part in text.split(row.separator) if part.strip())


def _from_pod(environ: Mapping[str, str]) -> dict[str, _Given]:
    # The usual name of this variable in pod specs; a better default than the host name.
    name = environ.get("NODE_NAME", "").strip()
    return {"node_name": _Given("NODE_NAME", (name,))} if name else {}


def _from_file(config: _Given | None, options: Mapping[str, Option]) -> dict[str, _Given]:
    if config is None:
        return {}
    path = _value(_OPTIONS[_FILE], config, {})
    given: dict[str, _Given] = {}
    try:
        for key, value in read_options(path).items():
            name = _field_of_key(key, path, options)
            if name in given:
                raise SettingsError(f"{key} in {path}: the option is given twice")
            given[name] = _from_key(name, value, f"{key} in {path}")
    except OSError as error:
        reason = f"{error.strerror}; it must be a readable YAML file"
        raise SettingsError(f"{config.source}: cannot read {str(path)!r}: {reason}") from error
    return given


def _field_of_key(key: str, path: Path, options: Mapping[str, Option]) -> str:
    known = [kebab(name) for name in options if name != _FILE]
    option = kebab(key)
    if option in known:
        return option.replace("-", "_")
    # Some options have names that are similar to that of the file's own.
    hint = remedy("" if option == _FILE else option, known)
    raise SettingsError(f"{key!r} in {path}: no such option; {hint}")


def _from_key(name: str, value: str | tuple[str, ...], source: str) -> _Given:
    if isinstance(value, str):
        return _Given(source, (value,))
    if not _OPTIONS[name].repeatable:
        raise SettingsError(f"{source}: a list is not {_OPTIONS[name].kind.allowed}")
    return _Given(source, value)


def _value(row: Option, given: _Given | None, values: Mapping[str, Any]) -> Any:
    if given is None:
        given = _Given("default", () if row.default is None else (row.default.format_map(values),))
    try:
        parsed = tuple(parse_text(row.kind, text.strip(), given.source) for text in given.texts)
    except DocumentError as error:
        raise SettingsError(str(error)) from None
    if row.repeatable:
        return parsed
    return parsed[-1] if parsed else None


def _check_ages(settings: Settings, given: Mapping[str, _Given]) -> None:
    if settings.stale_after >= settings.poll_interval:
        return
    if stale := given.get("stale_after"):
        least = f"it must be at least the poll interval, {settings.poll_interval:g}s"
        raise SettingsError(f"{stale.source}: {stale.texts[-1]!r} is too short: {least}")
    poll = given["poll_interval"]
    most = f"it must be at most stale-after, {settings.stale_after:g}s unless that is set too"
    raise SettingsError(f"{poll.source}: {poll.texts[-1]!r} is too long: {most}")


def _check_hostname_label(settings: Settings, label: _Given | None) -> None:
    if label and settings.dcgm_version == "4.9" and settings.dcgm_hostname_label != "hostname":
        rule = "it must be hostname, or be left out, with dcgm-version 4.9"
        raise SettingsError(
            f"{label.source}: {label.texts[-1]!r} is not a label of dcgm-exporter 4.9: {rule}"
        )


def kebab(name: str) -> str:
    """Return the key of an option in the YAML file, which is its flag without dashes before it."""
    return name.replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of an option."""
    return _PREFIX + name.upper()
