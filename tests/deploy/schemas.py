"""Whether objects are strictly valid: each field is one of Kubernetes or of the resource's definition."""

import json
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.deploy.openshift import SECURITY_CONTEXT_CONSTRAINTS
from tests.deploy.rendering import Manifest
from tests.deploy.tools import TOOLS, tool

VERSIONS = kubernetes_validate.utils.all_versions()
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]

OPERATOR = "monitoring.coreos.com"
_OPERATOR_SCHEMAS = TOOLS / "node_modules/@kubernetes-models/prometheus-operator/_schemas"
_READER = Path(__file__).with_name("operator_schemas.mjs")
# What is neither in Kubernetes nor in the operator's package, by the definition that its project publishes.
_OTHERS = {("security.openshift.io/v1", "SecurityContextConstraints"): SECURITY_CONTEXT_CONSTRAINTS}


class InvalidError(Exception):
    """An object is of no known kind, has an unknown field, lacks one, or has a wrong value."""


def validate(objects: Iterable[Manifest], version: str = NEWEST) -> None:
    """Raise InvalidError for objects that are not strictly valid in a version of Kubernetes.

    What is defined outside Kubernetes, for the Prometheus Operator and OpenShift, has one version here.
    Without the operator's schemas a test that validates its objects is skipped, but fails in CI.
    """
    texts: dict[bool, list[str]] = {True: [], False: []}
    for each in objects:
        texts[each["apiVersion"].startswith(f"{OPERATOR}/")].append(json.dumps(each, sort_keys=True))
    for text in texts[False]:
        _check(text, version)
    if texts[True]:
        _check_operator(tuple(texts[True]))


@cache
def _check(text: str, version: str) -> None:
    """Check an object once: most are the same in many overlays."""
    each = json.loads(text)
    name = f"{each['kind']} {each['metadata']['name']}"
    schema: dict[str, Any] | None = _OTHERS.get((each["apiVersion"], each["kind"]))
    try:
        if schema is None:
            kubernetes_validate.validate(each, version, strict=True)
        else:
            jsonschema.validate(each, schema, jsonschema.Draft202012Validator)
    except kubernetes_validate.SchemaNotFoundError as error:
        message = f"{name}: {error.message}"
        raise InvalidError(message) from error
    except jsonschema.ValidationError as error:
        message = f"{name}: {error.json_path}: {error.message}"
        raise InvalidError(message) from error


@cache
def _check_operator(texts: tuple[str, ...]) -> None:
    """Check all objects at once: starting node costs more than the rest."""
    done = subprocess.run(
        [tool("node"), _READER, _operator_schemas()],
        input=f"[{','.join(texts)}]",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    if complaints := json.loads(done.stdout):
        raise InvalidError("\n".join(complaints))


def _operator_schemas() -> Path:
    if _OPERATOR_SCHEMAS.is_dir():
        return _OPERATOR_SCHEMAS
    say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
    return say("the schemas of the Prometheus Operator are not there (scripts/install-tools)")
