"""Hooks of the fuzzer in ``test_openapi_fuzz.py``, loaded by SCHEMATHESIS_HOOKS.

History refuses some requests that OpenAPI cannot exclude; of these, and of no others, a 400 is no failure.
A query has texts only: what was made as false or a number is a name there, and alone a list of one.
"""

import time
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

from exporter.config import load_settings
from exporter.fleet.pages.openapi import LONGEST_NAME
from exporter.history.plan import span_seconds
from exporter.web.node.parameters import DEFAULT_SPAN

KEPT = load_settings({}, {}).history_retention
# Between the request and this look at the clock; the history itself keeps a little more than it says.
SLACK = 600.0


@schemathesis.hook
def filter_failure(
    _context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case,
    response: schemathesis.Response,
) -> bool:
    """Drop a refusal by history of what only words say that it refuses, and names that are valid as sent."""
    if isinstance(failure, AcceptedNegativeData):
        return not _names_only(parse_qs(urlsplit(response.request.url).query, keep_blank_values=True))
    if not isinstance(failure, RejectedPositiveData) or case.operation.path != "/api/v1/history":
        return True
    asked = {name: values[-1] for name, values in parse_qs(urlsplit(response.request.url).query).items()}
    return response.status_code != 400 or not (_half_named(asked) or _before_memory(asked))


def _names_only(sent: Mapping[str, list[str]]) -> bool:
    """Whether a query has nothing but valid namespaces."""
    names = ",".join(sent.get("namespace", [])).split(",")
    return sent.keys() == {"namespace"} and all(0 < len(name) <= LONGEST_NAME for name in names)


def _half_named(asked: Mapping[str, str]) -> bool:
    """Whether a pod is named without its namespace or the other way round, or a container without both."""
    return ("namespace" in asked) != ("pod" in asked) or ("container" in asked and "pod" not in asked)


def _before_memory(asked: Mapping[str, str]) -> bool:
    """Whether what is asked for begins before the history that memory keeps."""
    now = time.time()
    end = min(float(asked.get("end", now)), now)
    return end - (span_seconds(asked.get("range", DEFAULT_SPAN)) or 0.0) < now - KEPT + SLACK
