"""The page as a document: whole, harmless, without script or style, and with links that lead somewhere."""

import re
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import pytest

from exporter.config import load_settings
from exporter.model import ContainerRef
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from exporter.web.node.caches import PageCache
from exporter.web.node.parameters import Place
from tests.page.web.views_reading import (
    NOW,
    SCENARIOS,
    draw,
    gpu,
    holder,
    mig,
    node_page,
    read,
    scenario,
    snapshot,
)
from tests.site import site_of

STATIC = Path(__file__).parents[3] / "exporter/web/static"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}",
    "&lt;b&gt;",
    "\u202eevil",
    "\udc80",
    "a\x00b",
    "]]><!--",
)


@pytest.fixture(params=SCENARIOS)
def page(request):
    """Return the page of each scenario."""
    return draw(scenario(request.param))


def test_every_scenario_is_a_whole_document(page) -> None:
    (html,) = page.all("html")
    ids = [element.attributes["id"] for element in html.all() if "id" in element.attributes]

    assert html.attributes["lang"] == "en"
    assert len(ids) == len(set(ids))
    for element in html.all():
        for name in ("href", "fill", "aria-labelledby"):
            value = element.attributes.get(name) or ""
            target = re.fullmatch(r"#(.+)|url\(#(.+)\)", value) if name != "aria-labelledby" else None
            wanted = (target[1] or target[2]) if target else value if name == "aria-labelledby" else ""
            assert not wanted or wanted in ids


def test_the_page_has_no_inline_script_or_style(page) -> None:
    for element in page.all():
        assert element.tag not in {"style", "iframe", "object", "embed", "base"}
        assert element.tag != "script" or (element.attributes["src"] and not element.children)
        assert "style" not in element.attributes
        assert not [name for name in element.attributes if name.startswith("on")]


def test_nothing_is_loaded_from_elsewhere(page) -> None:
    for element in page.all():
        for name in ("href", "src", "action", "srcset", "content"):
            value = element.attributes.get(name) or ""
            assert not re.match(r"[a-z]+:|/", value), value
    for sheet in STATIC.glob("*.css"):
        assert not re.search(r"url\(|@import|https?:", sheet.read_text("utf-8"))


def test_every_bar_has_a_label_or_numbers_next_to_it(page) -> None:
    bars = page.all("svg", of="bar")

    assert all(drawn.attributes.get("aria-label") or "aria-hidden" in drawn.attributes for drawn in bars)
    assert all(cell.attributes.get("scope") for cell in page.all("th"))


async def test_every_link_leads_somewhere() -> None:
    shown = snapshot([gpu()], [holder("a")])
    listen = load_settings({"listen": "127.0.0.1:0"}, {}).listen
    server = Server(make_app(site_of(lambda: shown)), listen)
    url = await server.start()
    try:
        accept = {"Accept": "text/html"}
        async with aiohttp.ClientSession(raise_for_status=True, headers=accept) as session:
            root = read(await (await session.get(url)).text())
            targets = {element.attributes["href"] for element in root.all() if "href" in element.attributes}
            served = {target for target in targets if not target.startswith("#")}
            for target in served:
                await session.get(urljoin(url, target))
    finally:
        await server.stop()

    assert {"doctor", "metrics", "api/v1/snapshot", "api/v1/openapi.json", "-/healthy"} <= served


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_the_cluster_stay_text(name) -> None:
    honest, shown = [draw(_named(text)) for text in ("honest", name)]

    assert [element.tag for element in shown.all()] == [element.tag for element in honest.all()]
    assert [set(e.attributes) for e in shown.all()] == [set(e.attributes) for e in honest.all()]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_unchanged_or_escaped(name) -> None:
    text = draw(_named(name)).one("tbody").text

    assert name in text if name.isprintable() else name not in text


def test_a_page_with_any_name_can_be_sent() -> None:
    assert node_page(_named("\ud800"), now=NOW).encode()


def _named(name):
    ref = ContainerRef(name, name, name)
    rows = [holder("x", holder=ref, resource=name), holder("x", mig(name).device, holder=ref)]
    return snapshot(
        [gpu(sharing="time-slicing"), gpu(1, model=name)],
        rows,
        node={"name": name, "unresolved": {name: 1}, "process_view": False, "process_view_reason": name},
        failing={"identity": name, "podresources": name},
    )


@pytest.mark.parametrize(
    ("interval", "age", "look"), [(5.0, 61, "old"), (120.0, 350, "fresh"), (120.0, 361, "old")]
)
def test_data_is_old_after_several_missed_polls(interval, age, look) -> None:
    shown = snapshot()
    (line,) = read(node_page(shown, now=shown.timestamp + age, interval=interval)).all("p", of="age")
    assert look in line.classes
    assert float(line.attributes["data-old"]) == max(60.0, 3 * interval)


async def test_the_page_knows_the_poll_interval() -> None:
    shown = snapshot()
    html = await PageCache(lambda: shown, interval=120.0).html(Place())
    assert b'data-old="360.0"' in (html or b"")
