"""Finds the commands in the documentation, and what is wrong with one without running it."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import fields
from importlib.util import find_spec
from itertools import pairwise

from markdown_it import MarkdownIt

from deploy.charts.values import read_values
from exporter.cli import COMMANDS
from exporter.commands import INSPECT
from exporter.commands.parser import parse
from exporter.config import Settings, SettingsError, load_settings
from exporter.demo.scenario import catalog
from exporter.model import NodeRow, Snapshot
from exporter.web.node.app import make_app
from tests.product.deploy.rendering import Manifest, composed, container, example, only, overlay
from tests.site import site_of
from tests.tools import ROOT

PAGES = (
    *("README.md", "CONTRIBUTING.md", "deploy/charts/gpuslice-exporter/README.md"),
    *(
        path.relative_to(ROOT).as_posix()
        for folder in ("docs", "docs/platforms", "alerts/runbooks")
        for path in sorted((ROOT / folder).glob("*.md"))
    ),
)
# Folders of this repository; a path that starts with another one is the reader's.
OURS = re.compile(r"(?:deploy|docs|scripts|alerts|dashboards|tests|exporter)/.+")
PROGRAMS_OF_OTHERS = {"amtool", "docker", "gh", "install", "jq", "ln", "sha256sum", "systemctl"}
PROGRAMS_OF_OTHERS |= {"systemd-sysusers", "systemd-tmpfiles"}
KUBECTL = {"apply", "delete", "diff", "exec", "get", "label", "logs", "port-forward", "rollout"}
HELM_OPTIONS = {"--namespace", "--reset-then-reuse-values"}
# Objects of others that commands name.
THEIRS = {"svc/prometheus-operated"}


class WrongCommandError(Exception):
    """A command names something that does not exist."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the blocks of code of a page, with their languages."""
    tokens = MarkdownIt("commonmark").parse((ROOT / page).read_text())
    return [(token.info, token.content) for token in tokens if token.type in {"fence", "code_block"}]


def commands(page: str) -> Iterator[str]:
    """Yield the commands of a page without their comments."""
    for language, text in blocks(page):
        whole = re.sub(r"\\\n\s*", "", text)
        lines = {"console": r"^\$ (.*)", "sh": r"^(.*)", "": r"^((?:make|\.venv/bin/\w+) .*)"}.get(language)
        if lines is not None:
            yield from (
                re.sub(r" +# .*", "", line) for line in re.findall(lines, whole, re.MULTILINE) if line
            )


def check(command: str) -> None:
    """Raise WrongCommandError if a command names an option, target, path or object that does not exist."""
    # A placeholder such as <node> is a word; the commands after a pipe are of others.
    words = shlex.split(re.sub(r"<([\w-]+)>", r"\1", command).partition(" | ")[0].rstrip(" &"))
    words = words[1:] if words[0] == "sudo" else words
    for word in words:
        path = word.rpartition("=")[2]
        if OURS.fullmatch(path) and not (ROOT / path).exists():
            raise WrongCommandError(f"there is no {path}")
    program, arguments = words[0].rpartition("/")[2], words[1:]
    if "=" in program or program in PROGRAMS_OF_OTHERS - {"docker"}:
        return
    if program not in CHECKS:
        raise WrongCommandError(f"{program} is not known here")
    CHECKS[program](arguments)


def _require(names: Iterable[str], known: Iterable[str], what: str) -> None:
    if missing := set(names).difference(known):
        raise WrongCommandError(f"there is no {what} {', '.join(sorted(missing))}")


def _ours(arguments: list[str]) -> None:
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            parsed = vars(parse(arguments))
        load_settings(parsed, {})
    except (SystemExit, SettingsError) as error:
        raise WrongCommandError(output.getvalue() or str(error)) from error
    scenario = parsed.get("scenario")
    _require({scenario} if scenario else set(), set(catalog.names()), "scenario")


def _kubectl_plugin(arguments: list[str]) -> None:
    _ours(arguments if arguments and arguments[0] in COMMANDS else [INSPECT, *arguments])


def _make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    # Those of the pattern `test-%`.
    targets |= {f"test-{path.name}" for path in (ROOT / "tests").iterdir() if path.is_dir()}
    _require([word for word in arguments if "=" not in word], targets, "target")
    variables = [word.partition("=")[0] for word in arguments if "=" in word]
    _require(variables, set(re.findall(r"\b[A-Z_]+\b", makefile)), "variable")


def _kubectl(arguments: list[str]) -> None:
    if arguments[0] == "gpuslice":
        _kubectl_plugin(arguments[1:])
        return
    end = arguments.index("--") if "--" in arguments else len(arguments)
    arguments, inside = arguments[:end], arguments[end + 1 :]
    rest = arguments[2:] if arguments[0] == "-n" else arguments
    _require({rest[0]}, KUBECTL, "command of kubectl")
    for folder in _values(rest, "-k"):
        if OURS.fullmatch(folder) and not (ROOT / folder / "kustomization.yaml").exists():
            raise WrongCommandError(f"there is no kustomization in {folder}")
    workloads = {f"ds/{only(composed(), 'DaemonSet')['metadata']['name']}", *THEIRS}
    workloads |= {f"svc/{each['metadata']['name']}" for each in example("hub") if each["kind"] == "Service"}
    _require({word for word in rest if word.startswith(("ds/", "svc/"))}, workloads, "object")
    if rest[0] == "port-forward" and rest[1] not in THEIRS:
        ports = {str(port["containerPort"]) for port in container(composed())["ports"]}
        _require(rest[2:], ports, "port")
    if rest[0] == "label":
        _require(rest[3:], {f"{key}={value}" for key, value in _namespace_labels().items()}, "label")
    if inside:
        check(shlex.join(inside))


def _namespace_labels() -> Manifest:
    return dict(only(overlay("gpu-cluster"), "Namespace")["metadata"]["labels"])


def _helm(arguments: list[str]) -> None:
    verb, *rest = arguments
    _require({verb}, {"install", "upgrade", "uninstall"}, "command of helm")
    if verb != "uninstall" and not (ROOT / rest[1] / "Chart.yaml").exists():
        raise WrongCommandError(f"there is no chart in {rest[1]}")
    values = read_values(ROOT / "deploy/charts/gpuslice-exporter/values.yaml")
    paths = {value.path for value in values}
    options = {f"config.{field.name.replace('_', '-')}" for field in fields(Settings)}
    changed = [value.partition("=")[0] for value in (*_values(rest, "--set"), *_values(rest, "--set-file"))]
    # A key of labels is the reader's.
    named = {path.rpartition(".")[0] if ".labels." in path else path for path in changed}
    _require(named, paths | options, "value")
    known = {*HELM_OPTIONS, "--set", "--set-file", "--values"}
    _require({word for word in rest if word.startswith("--")}, known, "option of helm")


def _curl(arguments: list[str]) -> None:
    app = make_app(site_of(lambda: Snapshot(timestamp=0.0, sequence=0, node=NodeRow(name="node"))))
    routes = {route.resource.canonical for route in app.router.routes() if route.resource is not None}
    urls = [re.fullmatch(r"http://localhost:9836(/[^?]*)(?:\?.*)?", word) for word in arguments]
    # Parts of a route in braces stand for any name.
    shapes = [re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route)) for route in routes]
    paths = {url[1] for url in urls if url}
    known = {path for path in paths if any(re.fullmatch(shape, path) for shape in shapes)}
    _require(paths, known, "path")


def _python(arguments: list[str]) -> None:
    option, module, *_ = arguments
    if option != "-m" or find_spec(module) is None:
        raise WrongCommandError(f"there is no module {module}")


def _pip(arguments: list[str]) -> None:
    _require({arguments[0]}, {"install"}, "command of pip")


def _docker(arguments: list[str]) -> None:
    variables = {value.partition("=")[0] for value in _values(arguments, "--build-arg")}
    _require(
        variables, set(re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)), "argument"
    )
    if arguments[0] == "run":
        image = next(number for number, word in enumerate(arguments) if word.startswith("gpuslice-exporter:"))
        _ours(arguments[image + 1 :])


def _pytest(arguments: list[str]) -> None:
    options = re.findall(r'"(--[\w-]+)"', (ROOT / "tests/conftest.py").read_text())
    _require([word for word in arguments if word.startswith("--")], options, "option of pytest")


def _values(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


CHECKS = {
    "gpuslice-exporter": _ours,
    "make": _make,
    "kubectl": _kubectl,
    "helm": _helm,
    "curl": _curl,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "docker": _docker,
    "pytest": _pytest,
}
