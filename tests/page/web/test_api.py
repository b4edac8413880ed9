"""The API matches its description."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from exporter.demo.scenario import catalog
from exporter.history import FIELDS
from exporter.metrics import CONTAINER, FAMILIES, Family, field_name
from exporter.web.kit.openapi.describe import JSON
from exporter.web.node.openapi.operations import OPERATIONS, document
from tests.together.end_to_end.serving import Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

# One without a GPU, one whose driver leaves most out, one with other devices.
SCENARIOS = ("no-gpu", "old-driver", "hami-vendors")
NODE = catalog.load("t4-timeslicing")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    """Serve a node that was polled twice."""
    async with serving(NODE) as running:
        await running.poll(0)
        await running.poll(5)
        yield running


def _closed() -> dict[str, Any]:
    """Return the description, closed: no object allows a field that it does not name."""
    described = document()
    for schema in _schemas(described["components"]["schemas"]):
        if "properties" in schema:
            schema["additionalProperties"] = False
    return described


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield node
        for child in node.values():
            yield from _schemas(child)
    elif isinstance(node, list):
        for child in node:
            yield from _schemas(child)


def _faults(name: str, answer: Any) -> list[str]:
    """Return how an answer differs from the schema of that name."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": _closed()["components"]}
    Draft202012Validator.check_schema(schema)
    faults = Draft202012Validator(schema).iter_errors(answer)
    return [f"{fault.json_path}: {fault.message}" for fault in faults]


async def test_the_description_is_valid() -> None:
    """OpenAPI 3.1, and every reference leads somewhere."""
    validate(document())


async def test_the_description_is_served(served: Served) -> None:
    async with served.client.get(f"{served.url}/api/v1/openapi.json") as response:
        described = await response.json()
    (server,) = described["servers"]

    assert described == json.loads(json.dumps(document()))
    assert str(response.url.join(type(response.url)(f"{server['url']}/"))) == f"{served.url}/"


@pytest.mark.parametrize("path", OPERATIONS)
async def test_answers_have_a_described_type(served: Served, path: str) -> None:
    for accept in ("*/*", *OPERATIONS[path].answers):
        async with served.client.get(served.url + path, headers={"Accept": accept}) as response:
            described = document()["paths"][path]["get"]["responses"][f"{response.status}"]
            kinds = described["content"]
            kind = response.headers["Content-Type"]
            assert any(kind.startswith(known) for known in kinds), (path, accept, kind)
            assert response.status == 200, path


@pytest.mark.parametrize("path", [path for path in OPERATIONS if JSON in OPERATIONS[path].answers])
async def test_a_format_that_a_path_lacks_is_refused_with_those_that_it_has(
    served: Served, path: str
) -> None:
    for form in ("xml", "csv", "text", "json"):
        async with served.client.get(f"{served.url}{path}?format={form}") as response:
            formats = OPERATIONS[path].parameters["format"].schema["enum"]
            assert response.status == (200 if form in formats else 400), (path, form)
            if form not in formats:
                assert await response.text() == f"The format must be one of {', '.join(formats)}.\n"


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_answers_match_the_description(scenario: str) -> None:
    async with serving(catalog.load(scenario)) as served:
        for second in (0, 5):
            await served.poll(second)
            for path, name in (
                ("/api/v1/snapshot", "Snapshot"),
                ("/api/v1/doctor", "Report"),
                ("/api/v1/history?range=5m", "History"),
            ):
                async with served.client.get(served.url + path) as response:
                    assert response.status == 200, (path, await response.text())
                    assert _faults(name, await response.json()) == [], path


async def test_the_schemas_refuse_wrong_answers(served: Served) -> None:
    """An extra field, a missing one, one of another type."""
    async with served.client.get(f"{served.url}/api/v1/snapshot") as response:
        good = await response.json()
    gpu = good["gpus"][0]

    assert _faults("Gpu", gpu) == []
    assert _faults("Gpu", {**gpu, "another": 1}) != []
    assert _faults("Gpu", {name: value for name, value in gpu.items() if name != "up"}) != []
    assert _faults("Gpu", {**gpu, "up": "yes"}) != []
    assert _faults("Snapshot", {**good, "gpus": [*good["gpus"], {}]}) != []


async def test_fields_have_help_name_and_unit_of_their_series() -> None:
    """Every series has a field."""
    fields = document()["components"]["schemas"]["Container"]["properties"]
    for family in CONTAINER:
        if isinstance(family, Family):
            field = fields[field_name(family)]
            assert (field["description"], field["x-series"]) == (family.help, family.name)
    units = {name: field.get("x-unit") for name, field in fields.items()}
    assert units["memory_used_bytes"] == "bytes"
    assert units["compute_used_ratio"] == "ratio"
    assert units["used_gpu_seconds_total"] == "gpu_seconds"
    assert units["processes"] is None
    named = {schema.get("x-series") for schema in _all(document()["components"]["schemas"])}
    missing = {family.name for family in FAMILIES if family.level != "pod"} - named
    assert missing == set()


def _all(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _all(child)


@pytest.mark.parametrize(
    "query", ["history?range=soon", "history?points=0", "snapshot?format=xml", "snapshot?format="]
)
async def test_refusals_match_the_description(served: Served, query: str) -> None:
    headers = {"Accept": "application/json"}
    async with served.client.get(f"{served.url}/api/v1/{query}", headers=headers) as response:
        assert response.status == 400
        assert _faults("Error", await response.json()) == []


async def test_history_describes_every_field_it_keeps() -> None:
    series = document()["components"]["schemas"]["History"]["properties"]["series"]
    levels = {item["properties"]["level"]["const"]: item for item in series["items"]["anyOf"]}

    assert set(levels) == set(FIELDS)
    for level, fields in FIELDS.items():
        assert set(fields) <= set(levels[level]["required"])
