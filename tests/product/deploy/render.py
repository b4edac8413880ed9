"""Renders deploy/ with kustomize and helm into tests/product/deploy/rendered: ``make rendered``.

Tests read these files, so that most of them need neither program. Rules and dashboards, which are committed
elsewhere, are replaced by the path of their file, and the version of the project by a word: a change of
either changes no rendering.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from exporter import __version__

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "charts/gpuslice-exporter"
RENDERED = Path(__file__).with_name("rendered")
INPUTS = RENDERED / "inputs.txt"
VERSION_MARK = "VERSION-OF-THE-PROJECT"
OVERLAYS = sorted(path.parent.name for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in DEPLOY.glob("components/*/kustomization.yaml"))
EXAMPLES = {path.stem: path for path in sorted(CHART.glob("examples/*.yaml"))}
# A component that changes what another one adds is used after it.
AFTER = {"client-certificates": ("web-config",), "hami-dra": ("hami",)}
# Combinations of components that tests look at, with the base or overlay below them.
COMPOSITIONS: list[tuple[str, tuple[str, ...]]] = [
    ("base", ()),
    *(("base", (*AFTER.get(component, ()), component)) for component in COMPONENTS),
    ("base", ("pods-api", "hami")),
    ("overlays/openshift", ("web-config", "kubernetes-api")),
]
# Examples for any platform say so in their first line. If they are overlays, they are rendered with PLATFORM.
BESIDE = sorted(
    name for name, path in EXAMPLES.items() if path.read_text().startswith("# Use with the file of")
)
PLATFORM = "gpu-operator"
# The programs are run by their paths: this module also runs outside the tests.
SEARCH_PATH = f"{ROOT / '.cache/tools/bin'}:{os.environ['PATH']}"
KUBERNETES_OF_HELM = "1.35.0"
RULE_KINDS = {
    "PrometheusRule": "alerts/operator/gpuslice-rules.yaml",
    "ClusterRules": "alerts/google/gpuslice-rules.yaml",
    "VMRule": "alerts/victoria-metrics/gpuslice-rules.yaml",
}

Manifest = dict[str, Any]


# Rules and dashboards are long: with libyaml they are read ten times as fast.
class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a duplicate key, as some readers of manifests do; others take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Manifest:
        """Return the mapping. ValueError: a key is duplicate."""
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            duplicate = next(key for key in keys if keys.count(key) > 1)
            message = f"line {node.start_mark.line + 1}: duplicate key {duplicate}"
            raise ValueError(message)
        mapping: Manifest = super().construct_mapping(node, deep)
        return mapping


# A lone "=" is text to Kubernetes, and a type of its own to this reader.
Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def objects_in(text: str) -> list[Manifest]:
    """Return the objects in a file or in the output of a program."""
    return [document for document in yaml.load_all(text, Loader) if document]


def composition_name(components: Iterable[str], of: str = "base") -> str:
    """Return the name of a combination's file."""
    return "+".join((*(() if of == "base" else (Path(of).name,)), *components)) or "base"


def renderings() -> Mapping[str, Callable[[], list[Manifest]]]:
    """Return what renders each file, by its path below ``rendered`` without the suffix."""
    return {
        **{f"overlays/{name}": partial(build_overlay, name) for name in OVERLAYS},
        **{f"components/{composition_name(c, of)}": partial(build, c, of) for of, c in COMPOSITIONS},
        "chart/default": template,
        **{f"chart/{name}": partial(template, *examples(name)) for name in EXAMPLES},
    }


def examples(name: str) -> tuple[str, ...]:
    """Return the examples that are rendered together under the name of the last one."""
    return (PLATFORM, name) if name in BESIDE and name in OVERLAYS else (name,)


def build_overlay(name: str) -> list[Manifest]:
    """Return the objects of ``deploy/overlays/NAME``."""
    return objects_in(_output("kustomize", "build", DEPLOY / "overlays" / name))


def build(components: Iterable[str] = (), of: str = "base") -> list[Manifest]:
    """Return the objects of the base, or of ``overlays/NAME``, with components, as in a user's overlay."""
    chosen = [f"../deploy/components/{name}" for name in components]
    return kustomize({"resources": [f"../deploy/{of}"], "components": chosen})


def kustomize(kustomization: Manifest) -> list[Manifest]:
    """Return the objects of a kustomization whose paths start at a folder next to ``deploy/``."""
    with TemporaryDirectory() as scratch:
        paths = {
            key: [os.path.relpath(DEPLOY / path, scratch) for path in kustomization.get(key, [])]
            for key in ("resources", "components")
        }
        (Path(scratch) / "kustomization.yaml").write_text(json.dumps(kustomization | paths))
        return objects_in(_output("kustomize", "build", scratch))


def template(*names: str) -> list[Manifest]:
    """Return the objects of the chart with examples."""
    values = [option for name in names for option in ("--values", EXAMPLES[name])]
    version = ("--kube-version", KUBERNETES_OF_HELM)
    return objects_in(
        _output("helm", "template", "gpuslice", CHART, *version, *values, "--namespace=gpuslice")
    )


def committed_form(objects: Iterable[Manifest]) -> str:
    """Return the text that is committed of objects."""
    short = [_shortened(each) for each in objects]
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump_all(short, Dumper=dumper, sort_keys=False, default_flow_style=None, width=120)
    return text.replace(__version__, VERSION_MARK)


def _shortened(each: Manifest) -> Manifest:
    """Return an object with paths instead of rules and dashboards. ValueError: their contents differ."""
    kind, name = each["kind"], each["metadata"]["name"]
    if source := RULE_KINDS.get(kind):
        (rules,) = objects_in((ROOT / source).read_text())
        _compare(each["spec"], rules["spec"], f"spec of {kind} {name}", source)
        return each | {"spec": source}
    paths = {key: f"dashboards/json/{key}" for key in each.get("data", ()) if key.endswith(".json")}
    for key, source in paths.items():
        _compare(json.loads(each["data"][key]), json.loads((ROOT / source).read_text()), name, source)
    return each | {"data": each["data"] | paths} if paths else each


def _compare(rendered: Any, written: Any, what: str, source: str) -> None:
    if rendered != written:
        message = f"{what} is not {source}: run make rules dashboards chart"
        raise ValueError(message)


def input_digests() -> dict[str, str]:
    """Return the digest of each file that a rendering is made from.

    Comments of YAML can change, except in templates. The chart's schema can only refuse values; a test
    validates the examples by it.
    """
    folders = ("base", "components", "overlays", "charts/gpuslice-exporter/templates")
    paths = [path for folder in folders for path in (DEPLOY / folder).rglob("*") if path.is_file()]
    paths += [*EXAMPLES.values(), CHART / "Chart.yaml", CHART / "values.yaml"]
    paths += [*ROOT.glob("alerts/*/kustomization.yaml"), ROOT / "dashboards/kustomization.yaml"]
    used = sorted(path.relative_to(ROOT).as_posix() for path in paths if path.name != "NOTES.txt")
    return {path: _digest(path) for path in used}


def _digest(path: str) -> str:
    text = (ROOT / path).read_text().replace(__version__, VERSION_MARK)
    if path.endswith(".yaml") and "/templates/" not in path:
        text = json.dumps(objects_in(text), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _output(program: str, *arguments: str | Path) -> str:
    # They end before collecting garbage pays, which takes a fifth of helm's time.
    environment = os.environ | {"GOGC": "off", "PATH": SEARCH_PATH}
    return subprocess.run(
        [program, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def render() -> dict[str, str]:
    """Return the text of each file below ``rendered``, by its path."""
    makers = renderings()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(lambda make: committed_form(make()), makers.values()))
    digests = "".join(f"{digest}  {path}\n" for path, digest in input_digests().items())
    return {f"{name}.yaml": text for name, text in zip(makers, texts, strict=True)} | {INPUTS.name: digests}


def main() -> None:
    """Write all files, and remove those that are no longer rendered."""
    if missing := [name for name in ("helm", "kustomize") if shutil.which(name, path=SEARCH_PATH) is None]:
        sys.exit(f"error: not installed: {' and '.join(missing)} (scripts/install-tools)")
    files = render()
    for path in RENDERED.rglob("*.yaml"):
        if path.relative_to(RENDERED).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        (RENDERED / name).parent.mkdir(parents=True, exist_ok=True)
        (RENDERED / name).write_text(text)


if __name__ == "__main__":
    main()
