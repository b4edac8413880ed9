"""Parameters of URLs: every route accepts what it should, and refuses the rest with a reason.

Routes for programs are described by OpenAPI, those that only pages use by a table here.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from jsonschema import Draft202012Validator

from exporter.config import ListenAddress
from exporter.demo.scenario import catalog
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.model import ORDERS, Fleet
from exporter.fleet.pages import openapi as hub
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.routes import FleetPages, make_hub_app
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.web.kit.http.server import Server
from exporter.web.kit.live.broadcaster import LONGEST_TAG, Ticker
from exporter.web.node.app import make_app
from exporter.web.node.openapi import operations as node
from exporter.web.node.parameters import SPAN_PATTERN
from tests.fleet.shown import usage_pages
from tests.fleet.waiting_cluster import waiting_pages
from tests.page.web.views_reading import snapshot
from tests.site import site_of
from tests.together.end_to_end.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESCRIBED = {"node": node, "hub": hub}
ADVICE = AdviceRead(found=ClusterAdvice(at=1.0, advices=()), read_at=1.0, error="", reads=1)
SCENARIO = catalog.load("t4-timeslicing")
NAMES = {
    "uuid": SCENARIO.gpus[0].uuid,
    "namespace": "ml",
    "pod": "nb-anna",
    "container": "notebook",
}
# What a description cannot say: a pod is named by two parameters or more.
WITH = {"namespace": "pod=nb-anna", "pod": "namespace=ml", "container": "namespace=ml&pod=nb-anna"}
SPAN = {"type": "string", "pattern": f"^({SPAN_PATTERN})?$"}
WORDS = {"type": "string"}
QUERY = dict.fromkeys(("q", "namespace", "gpu", "state", "sort"), WORDS) | {
    "columns": {"type": "array", "items": WORDS},
    "range": SPAN,
}
FOLLOWING = {"since": {"type": "string", "minLength": 1, "maxLength": LONGEST_TAG}}
FIGURES = {"range": {"type": "string", "pattern": f"^{SPAN_PATTERN}$"}, "format": {"enum": ["json"]}}
NAMESPACES = hub.OPERATIONS["/"].parameters["namespace"].schema
SORTED = {name: {"enum": list(keys)} for name, keys in ORDERS.items()} | {"namespace": NAMESPACES}
WAITING = {"namespace": NAMESPACES}
HOLDER = "holder/{namespace}/{pod}/{container}"
PAGES = {
    "node": {
        **{f"/{path}": QUERY for path in ("", "doctor", "gpu/{uuid}", HOLDER)},
        **{f"/live/{path}": QUERY | FOLLOWING for path in ("", "doctor", "gpu/{uuid}", HOLDER)},
        **{f"/figures/{path}": FIGURES for path in ("node", "gpu/{uuid}", HOLDER)},
    },
    "hub": {
        "/": SORTED,
        "/fleet": SORTED,
        "/live/fleet": SORTED | FOLLOWING,
        "/live/waiting": WAITING | FOLLOWING,
    },
}
"""The routes that pages use, with the schemas of their parameters."""
Urls = dict[str, str]


class Asked(NamedTuple):
    """A parameter in the query of a path of the node or the hub."""

    where: str
    path: str
    name: str
    schema: dict[str, Any]

    def query(self, values: list[str]) -> str:
        """Return the path with these values, and with the parameters they need."""
        with_it = WITH.get(self.name, "") if self.path == "/api/v1/history" else ""
        asked = urlencode([(self.name, value) for value in values])
        return f"{self.path.format(**NAMES)}?{asked}&{with_it}"


def _parameters(where: str, described: dict[str, Any]) -> Iterator[Asked]:
    for path, item in described["paths"].items():
        for parameter in item["get"]["parameters"]:
            if parameter["in"] == "query":
                yield Asked(where, path, parameter["name"], parameter["schema"])
    for path, schemas in PAGES[where].items():
        for name, schema in schemas.items():
            yield Asked(where, path, name, schema)


EVERY = [*_parameters("node", node.document()), *_parameters("hub", hub.document())]
ASKED = [pytest.param(asked, id=f"{asked.where}:{asked.path}:{asked.name}") for asked in EVERY]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[ClientSession]:
    """Yield a client that sends no Accept header."""
    async with ClientSession(skip_auto_headers=("Accept",)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def urls() -> AsyncIterator[Urls]:
    """Serve a polled node, and a hub with an empty cluster of which not all is known."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(SCENARIO))
        await served.poll(0)
        server = Server(_hub(), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        stack.push_async_callback(server.stop)
        yield {"node": served.url, "hub": url.removesuffix("/")}


def _refused(schema: dict[str, Any]) -> Iterator[list[str]]:
    """Yield values of a parameter that its schema does not allow."""
    good = _accepted(schema)[0]
    if schema.get("type") != "array":
        yield [*good, *good]
    elif schema.get("uniqueItems"):
        yield [*good, good[0]]
    validator = Draft202012Validator(schema)
    for text in ("", "nonsense", "x" * 300, "-1", "1e999", "nan", "10000000d", "1 ", "٣", "json,csv"):
        value = [text] if schema.get("type") == "array" else _typed(schema, text)
        if not validator.is_valid(value):
            yield [text]


def _typed(schema: dict[str, Any], text: str) -> Any:
    if schema.get("type") not in ("number", "integer"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return None


def _accepted(schema: dict[str, Any]) -> list[list[str]]:
    """Return values of a parameter that its schema allows, its edges first."""
    if "enum" in schema:
        return [[option] for option in schema["enum"]]
    kind = schema["type"]
    if kind == "array":
        options = schema["items"].get("enum", ["state", "gpu"])
        return [options, *([option] for option in options)]
    if kind in ("integer", "number"):
        return [[f"{schema[edge]}"] for edge in ("maximum", "minimum")]
    if "pattern" in schema:
        texts = ("5m", "10s", "1980-01", "2099-12", "owner", "label:app.kubernetes.io/name")
        return [[text] for text in texts if re.search(schema["pattern"], text)]
    longest = schema.get("maxLength", 300)
    return [["é" * longest], ["x"]]


@pytest.mark.parametrize("asked", ASKED)
async def test_values_that_are_not_allowed_are_refused(
    urls: Urls, client: ClientSession, asked: Asked
) -> None:
    tried = list(_refused(asked.schema))
    assert tried or asked.name == "columns"
    for values in tried:
        async with client.get(urls[asked.where] + asked.query(values)) as response:
            # A stream that is not refused has no end.
            assert response.status == 400, values
            body = await response.text()
            said = json.loads(body)["error"] if body.startswith("{") else body
            assert re.fullmatch(rf"(The {asked.name} must|{asked.name}: ).*\.\n?", said), said


@pytest.mark.parametrize("asked", ASKED)
async def test_values_at_the_edge_of_what_is_allowed_are_accepted(
    urls: Urls, client: ClientSession, asked: Asked
) -> None:
    for values in _accepted(asked.schema):
        async with client.get(urls[asked.where] + asked.query(values)) as response:
            if (asked.name, values) == ("end", ["0"]):
                assert "are kept in memory" in await response.text()
            else:
                assert response.status == 200, (values, await response.content.read(200))


@pytest.mark.parametrize("path", ["/", "/doctor", "/gpu/{uuid}", "/live/"])
async def test_empty_fields_of_forms_are_accepted(urls: Urls, client: ClientSession, path: str) -> None:
    query = "?q=&namespace=&gpu=&state=&columns=&range="
    async with client.get(urls["node"] + path.format(**NAMES) + query) as response:
        assert response.status == 200


def _hub() -> web.Application:
    fleet = Fleet(at=1.0, window=3600.0, all_namespaces=False)
    look = FleetRead(reads=1, fleet=fleet, read_at=1.0, error="away", failing_since=1.0, advice=ADVICE)
    pages = FleetPages(lambda: look, NodeUrl())
    return make_hub_app(pages, Ticker(), waiting=waiting_pages(), usage=usage_pages())


@pytest.mark.parametrize(
    ("where", "make"), [("node", lambda: make_app(site_of(snapshot))), ("hub", _hub)], ids=["node", "hub"]
)
async def test_every_route_is_described_or_for_pages_only(
    where: str, make: Callable[[], web.Application]
) -> None:
    described = set(DESCRIBED[where].OPERATIONS)
    routes = {route.resource.canonical for route in make().router.routes()}

    assert routes - described == set(PAGES[where]) - described | {"/static/{hash}/{name}"}
    assert described < routes
