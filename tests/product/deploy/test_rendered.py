"""What tests read as rendered is what kustomize and helm render now."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.product.deploy import render
from tests.product.deploy.render import CHART, EXAMPLES, INPUTS, RENDERED
from tests.product.deploy.rendering import SINCE, Manifest, rendered
from tests.product.deploy.schemas import NEWEST, OF_OPERATORS, OLDEST, validate
from tests.product.deploy.tools import output, tool

# API groups without a schema here: test_overlays_monitoring.py compares their specs.
NO_SCHEMA = {"azmonitoring.coreos.com", "monitoring.googleapis.com", "operator.victoriametrics.com"}


def _group(each: Manifest) -> str:
    return each["apiVersion"].partition("/")[0]


def recorded() -> dict[str, str]:
    lines = (line.split("  ") for line in INPUTS.read_text().splitlines())
    return {path: digest for digest, path in lines}


def test_nothing_changed_since_it_was_rendered() -> None:
    """No template, value, overlay, component or example is new, changed or gone."""
    changed = sorted(path for path, _ in recorded().items() ^ render.input_digests().items())

    assert not changed, f"run make rendered and review its diff: {', '.join(dict.fromkeys(changed))} changed"


def test_every_overlay_component_and_example_is_rendered() -> None:
    files = {path.relative_to(RENDERED).with_suffix("").as_posix() for path in RENDERED.rglob("*.yaml")}

    assert files == render.renderings().keys(), "run make rendered"


def test_a_comment_is_no_change_but_a_value_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    digests = []
    for text in ("a: 1\n", "# A comment.\na: 1\n", "a: 2\n"):
        (tmp_path / "values.yaml").write_text(text)
        digests.append(render._digest("values.yaml"))

    assert digests[0] == digests[1] != digests[2]


def test_examples_fit_the_schema() -> None:
    """The schema does not change what is rendered, so it is no input of the digests."""
    schema = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))

    for name, path in EXAMPLES.items():
        errors = [error.message for error in schema.iter_errors(yaml.safe_load(path.read_text()))]
        assert errors == [], name


def test_contents_are_those_of_the_files_that_stand_for_them() -> None:
    """A payload with other contents is an error, not a silent path."""
    rules = {"kind": "PrometheusRule", "metadata": {"name": "rules"}, "spec": {"groups": []}}

    with pytest.raises(ValueError, match=r"rules is not alerts/operator/gpuslice-rules.yaml"):
        render.committed_form([rules])


def test_duplicate_keys_are_refused() -> None:
    """Helm and kustomize print them, the API server refuses them, and YAML readers take the last."""
    with pytest.raises(ValueError, match="line 3: duplicate key a"):
        render.objects_in("b: 1\nc:\n  a: 1\n  a: 2\n")


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid(version: str) -> None:
    """Kubernetes, old and new, and OpenShift know every field; the next test has the objects of operators."""
    for name in render.renderings():
        parts = name.rpartition("/")[2].split("+")
        objects = [each for each in rendered(name) if _group(each) not in {*OF_OPERATORS, *NO_SCHEMA}]
        validate(objects, max(version, *(SINCE.get(part, version) for part in parts)))


@pytest.mark.tools
def test_every_object_of_an_operator_is_valid() -> None:
    """The Prometheus Operator knows every field, also of rules, whose contents the renderings leave out."""
    tool("helm"), tool("kustomize")
    objects = [each for make in render.renderings().values() for each in make()]

    validate(each for each in objects if _group(each) in OF_OPERATORS)


@pytest.mark.tools
def test_the_committed_renderings_are_those_of_now() -> None:
    """What the programs render of the tree is what is committed, line by line."""
    tool("helm"), tool("kustomize")
    committed = {path.relative_to(RENDERED).as_posix(): path.read_text() for path in RENDERED.rglob("*.*")}
    now = render.render()

    assert [name for name in now if committed.get(name) != now[name]] == [], "run make rendered"


@pytest.mark.tools
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_the_same_as_kustomize() -> None:
    """``kubectl apply -k`` needs no option for any overlay."""
    for name in render.OVERLAYS:
        objects = render.objects_in(output("kubectl", "kustomize", render.DEPLOY / "overlays" / name))
        by_name = [
            sorted(each, key=lambda one: (one["kind"], one["metadata"]["name"]))
            for each in (objects, render.build_overlay(name))
        ]
        assert by_name[0] == by_name[1], name
