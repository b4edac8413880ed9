"""Checks that objects are strictly valid: Kubernetes or the definition of the kind has each field."""

import json
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from tests.product.deploy.gateway_api import BACKEND_TLS_POLICY, GROUP, HTTP_ROUTE, broken_rules
from tests.product.deploy.openshift import SECURITY_CONTEXT_CONSTRAINTS
from tests.product.deploy.rendering import Manifest
from tests.tools import TOOLS, lacks, tool

VERSIONS = kubernetes_validate.utils.all_versions()
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]

_MODELS = TOOLS / "node_modules/@kubernetes-models"
# Files of schemas by API group: how their names begin, before version and kind.
OF_OPERATORS = {
    "monitoring.coreos.com": _MODELS
    / "prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoring",
    "keda.sh": _MODELS / "keda/_schemas/ComGithubKedacoreKedaV2ApisKeda",
}
_READER = Path(__file__).with_name("operator_schemas.mjs")
# Kinds that are neither in Kubernetes nor in a package of npm, by the definition of their project.
_OTHERS = {
    ("security.openshift.io/v1", "SecurityContextConstraints"): SECURITY_CONTEXT_CONSTRAINTS,
    (f"{GROUP}/v1", "HTTPRoute"): HTTP_ROUTE,
    (f"{GROUP}/v1", "BackendTLSPolicy"): BACKEND_TLS_POLICY,
}


class InvalidError(Exception):
    """An object is of no known kind, has an unknown field, lacks one, or has a wrong value."""


def validate(objects: Iterable[Manifest], version: str = NEWEST) -> None:
    """Raise InvalidError for objects that are not strictly valid in a version of Kubernetes.

    Kinds of the Prometheus Operator, KEDA, OpenShift and the Gateway API have one version here. A test that
    validates objects of the operators is marked ``tools``: it needs node and schemas of npm.
    """
    texts: dict[str, list[str]] = {}
    for each in objects:
        texts.setdefault(each["apiVersion"].partition("/")[0], []).append(json.dumps(each, sort_keys=True))
    for group, of_group in texts.items():
        if group in OF_OPERATORS:
            _check_operator(group, tuple(of_group))
        else:
            for text in of_group:
                _check(text, version)


@cache
def _check(text: str, version: str) -> None:
    """Check an object once: most are the same in many overlays."""
    each = json.loads(text)
    kind, api_version = each["kind"], each["apiVersion"]
    name = f"{kind} {each['metadata']['name']}"
    try:
        _validator(kind, api_version, version).validate(each)
    except FileNotFoundError as error:
        message = f"{name}: Kubernetes {version} has no schema for {kind} of {api_version}"
        raise InvalidError(message) from error
    except jsonschema.ValidationError as error:
        message = f"{name}: {error.json_path}: {error.message}"
        raise InvalidError(message) from error
    if kind == "HTTPRoute" and (broken := list(broken_rules(each))):
        message = f"{name}: {'; '.join(broken)}"
        raise InvalidError(message)


@cache
def _validator(kind: str, api_version: str, version: str) -> Draft202012Validator:
    """Return a validator, made once for each kind: ``kubernetes_validate`` makes one for each object."""
    if other := _OTHERS.get((api_version, kind)):
        return Draft202012Validator(other)
    # apps/v1 is in apps-v1, rbac.authorization.k8s.io/v1 in rbac-v1.
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = _schema(f"{kind.lower()}-{group}", version)
    registry: Registry[Any] = Resource.from_contents(schema) @ _definitions(version)
    return Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: str) -> Registry[Any]:
    return Resource.from_contents(_schema("_definitions", version)) @ Registry()


def _schema(name: str, version: str) -> Any:
    return schema_contents(f"kubernetes-json-schema/v{version}-local-strict/{name}.json", version)


@cache
def _check_operator(group: str, texts: tuple[str, ...]) -> None:
    """Check all objects of an API group at once: starting node takes longer than the rest."""
    done = subprocess.run(
        [tool("node"), _READER, _operator_schemas(group)],
        input=f"[{','.join(texts)}]",
        capture_output=True,
        text=True,
        check=True,
    )
    if complaints := json.loads(done.stdout):
        raise InvalidError("\n".join(complaints))


def _operator_schemas(group: str) -> Path:
    prefix = OF_OPERATORS[group]
    if not prefix.parent.is_dir():
        lacks(f"the schemas of {group} are not installed (scripts/install-tools)")
    return prefix
