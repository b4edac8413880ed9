"""Hooks of the fuzzer in ``test_openapi_fuzz.py``, loaded by SCHEMATHESIS_HOOKS.

Paths get names that exist at the URL in FUZZED_URL, so that pages of GPUs and holders are reached. And
history refuses some requests that OpenAPI cannot exclude; of these, and of no others, a 400 is no failure.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import RejectedPositiveData

from exporter.config import load_settings
from exporter.history.spans import span_seconds
from exporter.web.parameters import DEFAULT_SPAN

KEPT = load_settings({}, {}).history_retention
# Between the request and this look at the clock; the history itself keeps a little more than it says.
SLACK = 600.0


@schemathesis.hook
def before_load_schema(_context: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
    """Set an example that exists for the parameters of paths."""
    names = dict(_names(os.environ["FUZZED_URL"]))
    for described in raw_schema["paths"].values():
        for parameter in described["get"]["parameters"]:
            if parameter["in"] == "path" and parameter["name"] in names:
                parameter["example"] = names[parameter["name"]]


@schemathesis.hook
def filter_failure(
    _context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case,
    response: schemathesis.Response,
) -> bool:
    """Drop a refusal by history of what its description says in words only that it refuses."""
    if not isinstance(failure, RejectedPositiveData) or case.operation.path != "/api/v1/history":
        return True
    asked = {name: values[-1] for name, values in parse_qs(urlsplit(response.request.url).query).items()}
    return response.status_code != 400 or not (_half_named(asked) or _before_memory(asked))


def _half_named(asked: Mapping[str, str]) -> bool:
    """Whether a pod is named without its namespace or the other way round, or a container without both."""
    return ("namespace" in asked) != ("pod" in asked) or ("container" in asked and "pod" not in asked)


def _before_memory(asked: Mapping[str, str]) -> bool:
    """Whether what is asked for begins before the history that memory keeps."""
    now = time.time()
    end = min(float(asked.get("end", now)), now)
    return end - (span_seconds(asked.get("range", DEFAULT_SPAN)) or 0.0) < now - KEPT + SLACK


def _names(url: str) -> Iterator[tuple[str, str]]:
    yield from (("hash", "any"), ("name", "app.css"))
    try:
        with urlopen(f"{url}/api/v1/snapshot") as answer:  # noqa: S310 - the server of the test
            snapshot = json.load(answer)
    except HTTPError:
        # The hub has no snapshot, and no such paths.
        return
    for row in (*snapshot["gpus"][:1], *snapshot["containers"][:1]):
        yield from ((name, row[name]) for name in ("uuid", "namespace", "pod", "container") if row.get(name))
