"""Accessibility: what axe-core finds, and whether the keyboard reaches everything."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from exporter.demo.scenario.catalog import dump, load
from tests.page.browser.axe import faults
from tests.page.browser.site import follow, looking, node_of, visiting
from tests.together.end_to_end.serving import Served

# What a person can reach with the tabulator, in the order of the page; those in closed details are not.
_REACHABLE = """() => [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")]
  .filter((each) => !each.disabled && each.checkVisibility({ visibilityProperty: true })).length"""
_MARK = """() => {
  const at = document.activeElement;
  if (at === document.body || "reached" in at.dataset) return null;
  at.dataset.reached = "";
  const style = getComputedStyle(at);
  return { seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
           what: at.outerHTML.slice(0, 120) };
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served() -> AsyncIterator[Served]:
    """Serve a small node; tests must not poll it."""
    async with node_of("lost-gpu") as node:
        yield node


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "gpu", "holder", "doctor"])
async def test_axe_finds_nothing_serious(window, served, place) -> None:
    async with visiting(window, served.url) as (page, _):
        if place:
            await follow(page, place)
        assert await faults(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("place", ["gpu", "holder", "doctor"])
async def test_axe_finds_nothing_serious_in_the_dark(window, showcase, place) -> None:
    async with visiting(window, showcase.url, color_scheme="dark") as (page, _):
        await follow(page, place)
        assert await faults(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("place", ["gpu", "doctor"])
async def test_a_short_name_of_a_node_is_a_link_by_more_than_its_colour(window, tmp_path, place) -> None:
    """Beside the longer name of the page it is a link in a text."""
    scenario = load("lost-gpu")
    path = tmp_path / "short.json"
    path.write_text(dump(replace(scenario, node=replace(scenario.node, name="n1"))))
    async with node_of(str(path)) as node, visiting(window, node.url) as (page, _):
        await follow(page, place)
        assert await faults(page) == []


@pytest.mark.parametrize("script", [True, False])
async def test_the_keyboard_reaches_everything(browser, script) -> None:
    """The focus is visible on each element, and none traps it."""
    async with (
        node_of("l40s") as served,
        looking(browser, served.url, java_script_enabled=script) as (page, _),
    ):
        await page.goto("./")
        if script:
            await page.locator("#pause").wait_for()
        wanted = await page.evaluate(_REACHABLE)
        reached = []
        for _ in range(wanted + 5):
            await page.keyboard.press("Tab")
            at = await page.evaluate(_MARK)
            if at is None:
                break
            reached.append(at)
        assert len(reached) == wanted
        assert [each["what"] for each in reached if not each["seen"]] == []


async def test_the_first_key_leads_past_the_head(window) -> None:
    async with node_of("l40s") as served, visiting(window, served.url) as (page, _):
        await page.keyboard.press("Tab")
        skip = page.locator(".skip")
        assert (await skip.bounding_box())["y"] >= 0
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
