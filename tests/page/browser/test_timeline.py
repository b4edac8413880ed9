"""Timelines in a browser, under the policy of the server."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
import pytest_asyncio

from tests.page.browser.site import PHONE, looking, node_of, overflow, visiting
from tests.together.end_to_end.serving import Served

HOUR = 3600_000
PLOTS = ".plot .main-svg"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served() -> AsyncIterator[Served]:
    """Serve a small node with some past; tests must not poll it."""
    async with node_of("t4-timeslicing") as node:
        yield node


@asynccontextmanager
async def berlin(page) -> AsyncIterator[None]:
    """Set the browser's time zone to Berlin."""
    session = await page.context.new_cdp_session(page)
    await session.send("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Berlin"})
    try:
        yield
    finally:
        await session.send("Emulation.setTimezoneOverride", {"timezoneId": ""})
        await session.detach()


async def shown(page) -> None:
    """Scroll to the timelines and wait until the last of them is drawn."""
    await page.locator("#timeline").scroll_into_view_if_needed()
    await page.locator("#timeline-figures figure:last-child .main-svg").first.wait_for(state="attached")


@pytest.mark.slow
async def test_timelines_are_drawn_under_the_policy(window, served) -> None:
    async with visiting(window, served.url, color_scheme="dark") as (page, _):
        await shown(page)
        assert await page.locator("#timeline-memory .bars path").count() > 3
        label = await page.locator("#timeline-memory .plot").get_attribute("aria-label")
        assert re.match(r"Memory by holder\. Now [0-9.]+ GiB used of [0-9.]+ GiB entitled", label)
        assert "History begins at" in await page.locator("#timeline-note").text_content()
        # Plotly places its parts by its own styles: without them they would stand below each other.
        place = await page.locator("#timeline-memory .plot").bounding_box()
        for svg in await page.locator(f"#timeline-memory {PLOTS}").all():
            assert abs((await svg.bounding_box())["y"] - place["y"]) < 2
        font = await page.locator("#timeline-memory .xtick text").first.evaluate(
            "(node) => getComputedStyle(node).fill"
        )
        assert font == await page.evaluate(
            "Object.assign(document.body.appendChild(document.createElement('i')),"
            " {className: 'ns'}) && getComputedStyle(document.querySelector('i.ns:last-child')).color"
        )


# Clocks go back in Berlin on 25 October 2026 at 1:00 UTC, and forward on 28 March 2027.
_FIGURE = """async ([module, begin, end, hours]) => {
  const { dressed } = await import(module);
  const y = Array.from({ length: (end - begin) / hours / 3600e3 }, () => 1);
  const trace = { x0: begin + hours * 1800e3, dx: hours * 3600e3, y, name: "a" };
  const layout = { xaxis: { range: [begin, end] }, legend: {}, margin: {}, hoverlabel: {} };
  const { data: [drawn], layout: { xaxis } } = dressed({ data: [trace], layout }, 800);
  const times = drawn.x ?? drawn.y.map((_, step) => drawn.x0 + step * drawn.dx);
  return { times, range: xaxis.range };
}"""


@pytest.mark.parametrize(
    ("day", "shifts"), [("2026-10-24", [2, 2, 1, 1]), ("2027-03-27", [1, 1, 2, 2]), ("2026-07-01", [2] * 4)]
)
async def test_each_step_is_drawn_at_the_local_time_of_its_moment(window, served, day, shifts) -> None:
    """A clock change moves what comes after it only."""
    begin = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp() * 1000
    async with visiting(window, served.url) as (page, _), berlin(page):
        (address,) = set(re.findall(r"static/[0-9a-f]+/js/plot\.js", await page.content()))
        asked = [f"/{address}", begin, begin + 24 * HOUR, 6]
        drawn = await page.evaluate(_FIGURE, asked)
    assert drawn["times"] == [
        pytest.approx(begin + (3 + 6 * step + shift) * HOUR, abs=1) for step, shift in enumerate(shifts)
    ]
    assert drawn["range"] == [begin + shifts[0] * HOUR, begin + (24 + shifts[-1]) * HOUR]


async def test_steps_of_a_repeated_hour_do_not_overlap(window, served) -> None:
    """Bars at the same time would look like one with twice the use."""
    begin = datetime.fromisoformat("2026-10-25T00:00:00+00:00").timestamp() * 1000
    async with visiting(window, served.url) as (page, _), berlin(page):
        (address,) = set(re.findall(r"static/[0-9a-f]+/js/plot\.js", await page.content()))
        drawn = await page.evaluate(_FIGURE, [f"/{address}", begin, begin + 2 * HOUR, 0.25])
    assert len(set(drawn["times"])) == 8


@pytest.mark.slow
async def test_plotly_is_not_loaded_before_it_is_needed(window, served) -> None:
    async with visiting(window, served.url, viewport={"width": 1400, "height": 300}) as (page, watch):
        await page.wait_for_load_state("networkidle")
        assert not [url for url in watch.requests if "plotly" in url or "/figures/" in url]
        await shown(page)
        assert len([url for url in watch.requests if "plotly" in url]) == 1


@pytest.mark.slow
async def test_another_range_is_drawn_in_place(window, served) -> None:
    async with visiting(window, served.url, "?q=ml") as (page, watch):
        await shown(page)
        async with page.expect_response(re.compile(r"figures/node\?range=5m")):
            await page.get_by_role("link", name="5 m", exact=True).click()
        await page.wait_for_url("**/?q=ml&range=5m")
        assert await page.locator(".ranges [aria-current]").text_content() == "5 m"
        assert len([url for url in watch.requests if "plotly" in url]) == 1
        async with page.expect_response(re.compile(r"figures/node\?range=1h")):
            await page.go_back()


@pytest.mark.slow
async def test_a_failure_is_shown_and_can_be_retried(window, served) -> None:
    page, _ = window
    await page.route("**/figures/node**", lambda route: route.fulfill(status=503, json={"error": "no luck"}))
    async with visiting(window, served.url) as (page, watch):
        watch.expected = ("figures/node", "status of 503")
        await page.locator("#timeline").scroll_into_view_if_needed()
        problem = page.locator(".timeline-problem")
        await problem.wait_for()
        assert "The timeline could not be loaded: no luck." in await problem.text_content()
        await page.unroute("**/figures/node**")
        await problem.get_by_role("button").click()
        await shown(page)
        assert await problem.count() == 0


@pytest.mark.parametrize("kind", ["gpu", "holder"])
async def test_each_page_has_timelines_of_its_own(window, served, kind) -> None:
    row = served.poller.snapshot.containers[0]
    holder = row.holder
    path = (
        f"gpu/{row.device.uuid}"
        if kind == "gpu"
        else f"holder/{holder.namespace}/{holder.pod}/{holder.container}"
    )
    async with visiting(window, served.url, path, viewport=PHONE) as (page, watch):
        await shown(page)
        assert [url for url in watch.requests if f"/figures/{path}?range=1h" in url]
        assert await overflow(page) <= 0


async def test_without_script_the_numbers_are_a_link_away(browser, served) -> None:
    async with looking(browser, served.url, java_script_enabled=False) as (page, _):
        await page.goto("./?range=5m")
        link = page.get_by_role("link", name="history as JSON")
        assert await link.get_attribute("href") == "api/v1/history?range=5m"
        assert (
            await page.get_by_role("link", name="6 h", exact=True).get_attribute("href")
            == "?range=6h#timeline"
        )


@pytest.mark.slow
async def test_timelines_follow_the_page_and_its_theme(window, served) -> None:
    async with visiting(window, served.url) as (page, watch):
        await shown(page)
        tick = page.locator("#timeline-memory .xtick text").first
        light = await tick.evaluate("(node) => getComputedStyle(node).fill")
        await page.emulate_media(color_scheme="dark")
        fill = "getComputedStyle(document.querySelector('#timeline-memory .xtick text')).fill"
        await page.wait_for_function(f"(light) => {fill} !== light", arg=light)
        before = [url for url in watch.requests if "figures/" in url]
        update = "document.dispatchEvent(new CustomEvent('gpuslice:update'))"
        await page.evaluate(f"Date.now = () => performance.timeOrigin; {update}")
        async with page.expect_response(re.compile("figures/node")):
            await page.evaluate(f"Date.now = () => performance.timeOrigin + 3600_000; {update}")
        assert [url for url in watch.requests if "figures/" in url] == [*before, before[-1]]
