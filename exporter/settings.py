"""Everything that can be set: one table makes the flags, the environment, the YAML keys and the docs.

A flag wins over the environment, the environment over the YAML file, the file over the default. All
sources hand over text, and so do the defaults, so that one parser per option reads them all.
"""

import argparse
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from exporter.settings_parse import (
    ABSOLUTE_PATH,
    ADDRESS,
    NAME,
    PATH,
    PATTERN,
    Kind,
    ListenAddress,
    SettingsError,
    choice,
    duration,
    read_yaml,
)

__all__ = ["ListenAddress", "Settings", "SettingsError", "add_options", "load_settings", "settings_markdown"]

_PREFIX = "GPUSLICE_"
_FILE = "config"  # the one option that the file cannot hold


class _Given(NamedTuple):
    """Values as text, and the name of the option as its user gave it."""

    source: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Option:
    """A row of the table. ``default`` may name the fields before it in braces; None is no value at all.

    ``shown`` is the default as the docs have it.
    """

    kind: Kind
    default: str | None
    help: str
    shown: str
    repeatable: bool


def option(
    kind: Kind, default: str | None, text: str, *, shown: str = "", repeatable: bool = False
) -> dict[str, _Option]:
    """Make the metadata of a field; ``shown`` stands in the docs for a default that is no constant."""
    shown = shown or (f"`{default}`" if default else "none")
    return {"option": _Option(kind, default, text, shown, repeatable)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the exporter runs with. Durations are in seconds; a pattern matches a whole resource name."""

    config: Path | None = field(
        metadata=option(ABSOLUTE_PATH, None, "YAML file with any of the other options.")
    )
    listen: ListenAddress = field(metadata=option(ADDRESS, ":9836", "Address of the page and of /metrics."))
    node_name: str = field(
        metadata=option(
            NAME,
            "{host}",
            "Name of this node on the page and in metrics.",
            shown="`$NODE_NAME`, else the host name",
        )
    )
    poll_interval: float = field(
        metadata=option(duration("0.1s", "1h"), "5s", "Time from one poll of all sources to the next.")
    )
    stale_after: float = field(
        metadata=option(
            duration("0.1s", "24h"),
            "60s",
            "How long the last good answer of a failing source is shown; at least the poll interval.",
        )
    )
    nvml_library: Path | None = field(
        metadata=option(PATH, None, "The driver's libnvidia-ml.so.1, where the usual places do not have it.")
    )
    kubelet_root: Path = field(metadata=option(PATH, "/var/lib/kubelet", "Root directory of the kubelet."))
    pod_resources_socket: Path = field(
        metadata=option(
            PATH,
            "{kubelet_root}/pod-resources/kubelet.sock",
            "Socket of the kubelet's pod-resources API.",
            shown="`<kubelet-root>/pod-resources/kubelet.sock`",
        )
    )
    pods_api_socket: Path = field(
        metadata=option(
            PATH,
            "{kubelet_root}/pods-api/pods-api.sock",
            "Socket of the kubelet's pods API.",
            shown="`<kubelet-root>/pods-api/pods-api.sock`",
        )
    )
    pod_logs: Path = field(
        metadata=option(PATH, "/var/log/pods", "The kubelet's directory of pod logs, read for names only.")
    )
    proc_root: Path = field(metadata=option(PATH, "/proc", "The procfs of the node's pid namespace."))
    sys_root: Path = field(metadata=option(PATH, "/sys", "The sysfs of the node."))
    resource_pattern: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Further resource names that are GPUs, matched whole, such as `nvidia\\.com/a100.*`; NVIDIA's own"
            " names are always known. In the environment, commas separate several.",
            repeatable=True,
        )
    )
    dcgm_names: Literal["on", "off", "only"] = field(
        metadata=option(
            choice("on", "off", "only"),
            "on",
            "Whether /metrics carries dcgm-exporter's series too, or nothing else.",
        )
    )
    dcgm_hostname_label: Literal["Hostname", "hostname"] = field(
        metadata=option(
            choice("Hostname", "hostname"),
            "Hostname",
            "Spelling of the label with the node in dcgm-exporter's series.",
        )
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        metadata=option(
            choice("debug", "info", "warning", "error"), "info", "Least severe message that is logged."
        )
    )
    log_format: Literal["text", "json"] = field(
        metadata=option(choice("text", "json"), "text", "Form of the log lines.")
    )


_OPTIONS: dict[str, _Option] = {row.name: row.metadata["option"] for row in fields(Settings)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every option; one that is not given leaves no trace in the parser's namespace."""
    for name, row in _OPTIONS.items():
        text = f"{row.help} Default: {row.shown}. Also {_variable(name)}."
        parser.add_argument(
            f"--{_kebab(name)}",
            metavar=row.kind.metavar,
            action="append" if row.repeatable else "store",
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%").replace("`", ""),
        )


def load_settings(argv_namespace: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Make the settings of parsed flags (by field name), environment, and the YAML file that these name.

    Other entries of both mappings are ignored, and a variable that is empty is not set. Raises
    SettingsError for the first value that cannot be used, and for any unknown key in the file.
    """
    given = _from_environment(environ) | _from_flags(argv_namespace)
    given = _from_pod(environ) | _from_file(given.get(_FILE)) | given
    values: dict[str, Any] = {"host": socket.gethostname()}
    for name, row in _OPTIONS.items():
        values[name] = _value(row, given.get(name), values)
    del values["host"]
    settings = Settings(**values)
    _check_ages(settings, given)
    return settings


def settings_markdown() -> str:
    """Give the table of all options as Markdown, one row per option, ending in a line feed."""
    head = "| Flag | Environment | YAML key | Default | Value | Meaning |\n|---|---|---|---|---|---|\n"
    return head + "".join(_markdown_row(name, row) for name, row in _OPTIONS.items())


def _markdown_row(name: str, row: _Option) -> str:
    key = "none" if name == _FILE else f"`{_kebab(name)}`"
    repeat = ", several times" if row.repeatable else ""
    cells = f"`--{_kebab(name)}`", f"`{_variable(name)}`", key, row.shown, row.kind.allowed + repeat, row.help
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _from_flags(namespace: Mapping[str, object]) -> dict[str, _Given]:
    return {
        name: _Given(f"--{_kebab(name)}", _texts(value))
        for name in _OPTIONS
        if (value := namespace.get(name)) is not None
    }


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    # Unknown names with our prefix are no mistake: Kubernetes makes variables of the names of Services.
    return {
        name: _Given(_variable(name), tuple(filter(None, text.split(","))) if row.repeatable else (text,))
        for name, row in _OPTIONS.items()
        if (text := environ.get(_variable(name), "").strip())
    }


def _from_pod(environ: Mapping[str, str]) -> dict[str, _Given]:
    # The name that pod specs commonly give to this variable; only a better default for ours.
    name = environ.get("NODE_NAME", "").strip()
    return {"node_name": _Given("NODE_NAME", (name,))} if name else {}


def _from_file(config: _Given | None) -> dict[str, _Given]:
    if config is None:
        return {}
    path = _value(_OPTIONS[_FILE], config, {})
    given: dict[str, _Given] = {}
    try:
        for key, value in read_yaml(path):
            name = _field_of_key(key, path)
            if name in given:
                raise SettingsError(f"{key} in {path}: the option is given twice")
            given[name] = _from_key(name, value, f"{key} in {path}")
    except OSError as error:
        reason = f"{error.strerror}; it must be a YAML file that can be read"
        raise SettingsError(f"{config.source}: cannot read {str(path)!r}: {reason}") from error
    return given


def _field_of_key(key: str, path: Path) -> str:
    known = [_kebab(name) for name in _OPTIONS if name != _FILE]
    kebab = _kebab(key)
    if kebab in known:
        return kebab.replace("-", "_")
    close = get_close_matches(kebab, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    raise SettingsError(f"{key!r} in {path}: no such option; {hint}")


def _from_key(name: str, value: str | list[str], source: str) -> _Given:
    if isinstance(value, str):
        return _Given(source, (value,))
    if not _OPTIONS[name].repeatable:
        raise SettingsError(f"{source}: a list is not {_OPTIONS[name].kind.allowed}")
    return _Given(source, tuple(value))


def _value(row: _Option, given: _Given | None, values: Mapping[str, Any]) -> Any:
    if given is None:
        texts = () if row.default is None else (row.default.format_map(values),)
        given = _Given("default", texts)
    parsed = tuple(_parse(row.kind, text.strip(), given.source) for text in given.texts)
    if row.repeatable:
        return parsed
    return parsed[-1] if parsed else None


def _parse(kind: Kind, text: str, source: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError as error:
        detail = f" ({error})" if str(error) else ""
        raise SettingsError(f"{source}: {text!r} is not {kind.allowed}{detail}") from error


def _check_ages(settings: Settings, given: Mapping[str, _Given]) -> None:
    if settings.stale_after >= settings.poll_interval:
        return
    if stale := given.get("stale_after"):
        least = f"it must be at least the poll interval, {settings.poll_interval:g}s"
        raise SettingsError(f"{stale.source}: {stale.texts[-1]!r} is too short: {least}")
    poll = given["poll_interval"]
    most = f"it must be at most stale-after, {settings.stale_after:g}s unless that is set too"
    raise SettingsError(f"{poll.source}: {poll.texts[-1]!r} is too long: {most}")


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _variable(name: str) -> str:
    return _PREFIX + name.upper()
