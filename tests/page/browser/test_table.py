"""The table of holders in a browser: with script in place, without script by form and links.

Its columns are tested in ``tests/page/web/test_holders_table.py``.
"""

from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from exporter.config import ListenAddress
from exporter.demo.scenario.catalog import load
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.page.browser.axe import faults
from tests.page.browser.site import NARROW, looking, overflow, visiting
from tests.page.web.views_reading import gpu, holder, snapshot
from tests.site import site_of
from tests.together.end_to_end.serving import serving

ROWS = "#holder-rows > tr"
COUNT = "#holders-count"
LAID_OUT = "row => row.checkVisibility({ contentVisibilityAuto: true })"


def asked(page) -> str:
    """Return the query of the address that the window shows."""
    return urlsplit(page.url).query


async def names(page) -> list[str]:
    """Return the pods in the rows."""
    return await page.locator(f"{ROWS} .pod").all_inner_texts()


async def stays(page) -> None:
    """Mark the window, so that a reload would be seen."""
    await page.evaluate("window.stayed = true")


async def stayed(page) -> bool:
    """Return whether the page was not reloaded since it was marked."""
    return await page.evaluate("window.stayed === true")


async def test_the_filter_applies_while_it_is_typed(window, showcase) -> None:
    async with visiting(window, showcase.url) as (page, _):
        await page.locator("html[data-table]").wait_for()
        await stays(page)
        before = len(await names(page))

        await page.keyboard.press("/")
        await page.keyboard.type("ns:ml", delay=20)
        await page.locator(COUNT, has_text="shown").wait_for()
        await page.wait_for_url("**/?q=ns:ml#holders")

        assert 0 < len(await names(page)) < before
        assert set(await page.locator(f"{ROWS} th .ns").all_inner_texts()) == {"ml/"}
        assert await page.evaluate("document.activeElement.id") == "holders-filter"
        assert await page.input_value("#holders-filter") == "ns:ml"
        assert await stayed(page)

        await page.keyboard.press("Escape")
        await page.wait_for_url("**/#holders")
        await page.locator(f"{ROWS} >> nth={before - 1}").wait_for()
        assert await page.input_value("#holders-filter") == ""
        assert asked(page) == ""


async def test_a_slash_is_a_letter_in_a_field(window, showcase) -> None:
    async with visiting(window, showcase.url) as (page, _):
        await page.locator("html[data-table]").wait_for()

        await page.keyboard.press("/")
        await page.keyboard.type("ml/nb")

        assert await page.input_value("#holders-filter") == "ml/nb"


async def test_headings_sort_by_keyboard_and_keep_their_focus(window, showcase) -> None:
    async with visiting(window, showcase.url) as (page, _):
        await page.locator("html[data-table]").wait_for()
        await stays(page)
        unsorted = await names(page)

        await page.focus(".h-memory a")
        await page.keyboard.press("Enter")
        await page.locator('.h-memory[aria-sort="descending"]').wait_for()

        assert asked(page) == "sort=-memory"
        assert await names(page) != unsorted
        assert await page.evaluate("document.activeElement.closest('th').className") == "h-memory"

        await page.go_back()
        await page.locator(".h-memory:not([aria-sort])").wait_for()
        assert await names(page) == unsorted
        assert await stayed(page)


async def test_columns_are_chosen_in_place(window, showcase) -> None:
    async with visiting(window, showcase.url) as (page, _):
        await page.locator("html[data-table]").wait_for()
        await stays(page)

        await page.click("#holders-columns summary")
        await page.check("#holders-columns input[value=efficiency]")
        await page.locator(".h-efficiency").wait_for()
        assert "efficiency" in asked(page)
        assert await page.locator("#holders-columns[open]").count() == 1

        await page.uncheck("#holders-columns input[value=efficiency]")
        await page.locator(".h-efficiency").wait_for(state="detached")
        assert asked(page) == ""

        await page.keyboard.press("Escape")
        assert await page.locator("#holders-columns[open]").count() == 0
        assert await stayed(page)


async def test_a_finding_leads_to_its_rows_in_place(window, showcase) -> None:
    async with visiting(window, showcase.url) as (page, _):
        await page.locator("html[data-table]").wait_for()
        await stays(page)

        await page.click('#cards a[href^="?state=unheld"]')
        await page.wait_for_url("**/?state=unheld#holders")
        await page.locator(COUNT, has_text="shown").wait_for()

        assert await page.locator(f"{ROWS} .state.c-unheld").count() == await page.locator(ROWS).count() > 0
        assert await page.input_value("#holders-state") == "unheld"
        await page.wait_for_function(
            "() => { const row = document.querySelector('#holder-rows > tr').getBoundingClientRect();"
            " return row.top > 0 && row.bottom <= innerHeight; }"
        )
        assert await stayed(page)


async def test_rows_come_and_go_with_the_polls_as_filtered(window) -> None:
    async with serving(load("showcase")) as served:
        await served.poll(0)
        await served.poll(15)
        async with visiting(window, served.url, "?state=active") as (page, _):
            await page.locator("html[data-table]").wait_for()
            await stays(page)
            first = await page.get_attribute("body", "data-sequence")
            await served.poll(30)
            await page.wait_for_function("was => document.body.dataset.sequence !== was", arg=first)

            assert await page.locator(f"{ROWS} .state:not(.c-active)").count() == 0
            assert await stayed(page)


async def test_on_a_phone_rows_are_cards(window, showcase) -> None:
    async with visiting(window, showcase.url, viewport=NARROW) as (page, _):
        row = page.locator(ROWS).first
        assert await row.evaluate("row => getComputedStyle(row).display") == "block"
        labels = await row.locator("td").evaluate_all(
            "cells => cells.map((cell) => getComputedStyle(cell, '::before').content)"
        )
        assert '"Memory"' in labels
        assert await overflow(page) == 0
        assert await page.locator(".holders").evaluate("box => box.scrollWidth - box.clientWidth") == 0


async def test_without_script_form_and_headings_work(browser, showcase) -> None:
    async with looking(browser, showcase.url, java_script_enabled=False) as (page, _):
        await page.goto("./")
        await page.fill("#holders-filter", "ns:ml")
        await page.click("#holders-columns summary")
        await page.check("#holders-columns input[value=age]")
        await page.click("#holders-form .apply")
        await page.locator(".h-age").wait_for()
        assert set(await page.locator(f"{ROWS} th .ns").all_inner_texts()) == {"ml/"}

        await page.click(".h-memory a")
        await page.locator('.h-memory[aria-sort="descending"]').wait_for()
        assert asked(page).startswith("q=ns:ml&sort=-memory&columns=")

        await page.click(f"{COUNT} a")
        await page.locator(COUNT, has_not_text="shown").wait_for()
        assert asked(page).startswith("sort=-memory&columns=")


async def test_the_chosen_theme_is_there_from_the_first_paint(browser, showcase) -> None:
    async with looking(browser, showcase.url, color_scheme="light") as (page, _):
        await page.goto("./")
        button = page.locator("#theme")
        assert await button.inner_text() == "Theme: system"
        while await button.inner_text() != "Theme: dark":
            await button.click()

        await page.goto("./?state=active", wait_until="commit")
        await page.locator("#theme:not([hidden])").wait_for()
        assert await page.get_attribute("html", "data-theme") == "dark"
        assert await button.inner_text() == "Theme: dark"


async def test_a_theme_can_be_chosen_without_storage(browser, showcase) -> None:
    async with looking(browser, showcase.url) as (page, _):
        await page.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new Error('forbidden'); } })"
        )
        await page.goto("./")
        await page.click("#theme")

        assert await page.get_attribute("html", "data-theme") == "light"


@asynccontextmanager
async def large_node(last=239):
    """Serve a node larger than any window, up to pod-``last``."""
    gpus = [gpu(index) for index in range(12)]
    rows = [holder(f"pod-{place}", f"GPU-{place % 12}") for place in range(last + 1)]
    server = Server(make_app(site_of(lambda: snapshot(gpus, rows))), ListenAddress("127.0.0.1", 0))
    try:
        yield (await server.start()).removesuffix("/")
    finally:
        await server.stop()


@pytest.mark.slow
async def test_rows_that_are_not_laid_out_can_be_found_and_linked_to(window) -> None:
    async with large_node() as url, visiting(window, url) as (page, _):
        last = page.locator(ROWS).last
        assert not await last.evaluate(LAID_OUT)

        assert await page.evaluate("window.find('pod-239')")
        await last.scroll_into_view_if_needed()
        assert await last.evaluate(LAID_OUT)

        await page.goto(f"{url}/#gpu-11")
        await expect(page.locator("#gpu-11")).to_be_in_viewport()
        await page.goto(f"{url}/#{await last.get_attribute('id')}")
        await expect(last).to_be_in_viewport()


async def test_paper_has_all_of_a_large_node(window) -> None:
    async with large_node() as url, visiting(window, url) as (page, _):
        await page.emulate_media(media="print")
        waiting = await page.locator("#gpus > .gpu, .holders").evaluate_all(
            "found => found.filter((each) => getComputedStyle(each).contentVisibility !== 'visible').length"
        )
        assert waiting == 0


@pytest.mark.slow
async def test_axe_finds_nothing_serious_on_a_large_node(window) -> None:
    """Rows that are not laid out are not hidden from screen readers."""
    # As few rows as make a node a large one: axe looks at each.
    async with large_node(last=99) as url, visiting(window, url) as (page, _):
        assert not await page.locator(ROWS).last.evaluate(LAID_OUT)
        assert await faults(page) == []
