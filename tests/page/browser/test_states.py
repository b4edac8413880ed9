"""The states of holders in a browser: live updates, marks, and legibility in both schemes."""

import pytest
from playwright.async_api import Locator, Page, expect

from exporter.model import Totals
from tests.page.browser.axe import faults
from tests.page.browser.site import PHONE, WIDE, visiting
from tests.page.browser.test_live import Node, node, opened
from tests.page.web.views_reading import GIB, gpu, holder, snapshot

NOW = 1_700_000_000.0
AGES = {"active": 5, "quiet": 300, "idle": 1200}


def _row(pod, age, **facts):
    totals = Totals(first_seen=NOW - 9000, last_active=NOW - age, seen_computing=True)
    return holder(pod, **{"compute_used": 0.0, "memory_used": 4 * GIB, "totals": totals, **facts})


def _show(made: Node, *rows, sharing="time-slicing") -> None:
    made.sequence += 1
    made.snapshot = snapshot([gpu(0, sharing)], rows, sequence=made.sequence, timestamp=NOW)
    made.site.ticker.tick(made.snapshot)


def _state(page: Page, pod: str) -> Locator:
    return page.locator("#holder-rows > tr", has_text=pod).locator("td.state")


async def test_a_state_is_followed_live(browser) -> None:
    async with node("nb") as (made, url), opened(browser, url) as (page, _):
        quiet_for = page.locator('td[data-label="Quiet for"]')
        for age, word, lasts in ((59, "active", ""), (60, "quiet", "1 min"), (599, "quiet", "9 min")):
            _show(made, _row("nb", age))
            await expect(_state(page, "nb")).to_have_text(word)
            await expect(quiet_for).to_have_text(lasts)
        _show(made, _row("nb", 600))
        await expect(_state(page, "nb")).to_have_text("idle, holding memory")
        await expect(quiet_for).to_have_text("10 min")
        _show(made, _row("nb", 0, compute_used=0.3))
        await expect(_state(page, "nb")).to_have_text("active")
        await expect(quiet_for).to_have_text("")


@pytest.mark.slow
async def test_quiet_holders_are_found_and_sorted(browser) -> None:
    async with node() as (made, url):
        _show(made, *(_row(f"nb-{word}", age) for word, age in AGES.items()))
        async with opened(browser, url) as (page, _):
            pods = page.locator("#holder-rows > tr .pod")
            await page.locator("html[data-table]").wait_for()
            await page.click(".h-quiet a")
            await expect(pods).to_have_text(["nb-idle", "nb-quiet", "nb-active"])
            await page.select_option("#holders-state", "quiet")
            await expect(pods).to_have_text(["nb-quiet"])
            await page.select_option("#holders-state", "")
            await page.fill("#holders-filter", "state:quiet")
            await expect(pods).to_have_text(["nb-quiet"])


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", PHONE)])
async def test_states_differ_by_more_than_colour(window, scheme, viewport) -> None:
    """Each has a mark, a word and a pattern, is accessible, and fits."""
    async with node() as (made, url):
        _show(made, *(_row(f"nb-{word}", age) for word, age in AGES.items()))
        async with visiting(window, url, viewport=viewport, color_scheme=scheme) as (page, _):
            marks = [await _state(page, f"nb-{word}").locator("use").get_attribute("href") for word in AGES]
            assert marks == ["#i-active", "#i-quiet", "#i-idle-memory"]
            for word in AGES:
                cell = _state(page, f"nb-{word}")
                assert await cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
            drawn = page.locator("#gpu-0 svg.bar .f-quiet").first
            assert await drawn.get_attribute("fill") == "url(#p-quiet)"
            await expect(page.locator(".legend li", has_text="quiet")).to_have_count(1)
            assert await faults(page) == []


async def test_a_box_says_for_how_long_its_holder_is_quiet(window) -> None:
    async with node() as (made, url):
        _show(made, _row("nb", 300), sharing="exclusive")
        async with visiting(window, url) as (page, _):
            note = page.locator("#gpu-0 .note")
            await expect(note).to_have_text("quiet 5 min")
            assert await note.evaluate("note => note.scrollWidth <= note.clientWidth")
