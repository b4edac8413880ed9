"""The pages in a browser: no errors, whole in small windows, on paper, and without script."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from exporter.config import ListenAddress
from exporter.model import ContainerRef
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.page.browser.site import Watch, follow, looking, node_of, overflow, visiting
from tests.page.web.views_reading import SCENARIOS, gpu, holder, mig, snapshot
from tests.site import site_of

NARROW = {"width": 360, "height": 740}
# About as wide as an upright sheet of paper.
PAPER = {"width": 720, "height": 1000}
HOSTILE = (
    "<img src=x onerror=window.caught=1><script>window.caught=1</script>\"' onfocus=window.caught=1 {{7*7}}"
)
_CUT_OFF = """[...document.querySelectorAll(".scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1
    || box.getBoundingClientRect().right > window.innerWidth + 1)
  .map((box) => box.innerText.slice(0, 60))"""
_MOVING = """[...document.querySelectorAll("*")].map((each) => getComputedStyle(each))
  .filter((style) => parseFloat(style.transitionDuration) > 0 || style.animationName !== "none").length"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plain(browser: Browser) -> AsyncIterator[tuple[Page, Watch]]:
    """Yield a window without script."""
    async with looking(browser, "", java_script_enabled=False) as opened:
        yield opened


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_node_is_quiet_and_fits_on_a_phone(window, scenario) -> None:
    """No error, no failed request, none to another origin, no violation of the policy, at any width.

    At 360 pixels what is too wide scrolls in its own box, and the page does not.
    """
    async with node_of(scenario) as served, visiting(window, served.url) as (page, watch):
        assert await page.title()
        assert watch.requests
        await page.set_viewport_size(NARROW)
        assert await overflow(page) <= 0


@pytest.mark.parametrize("place", ["gpu", "holder", "doctor"])
async def test_the_other_pages_are_quiet_and_fit_on_a_phone(window, showcase, place) -> None:
    async with visiting(window, showcase.url, viewport=NARROW, color_scheme="dark") as (page, _):
        await follow(page, place)
        assert f"/{place}" in page.url
        assert await overflow(page) <= 0


async def test_a_large_screen_is_used(window, showcase) -> None:
    wide = {"width": 3000, "height": 1600}
    async with visiting(window, showcase.url, viewport=wide) as (page, _):
        first, second = [await page.locator(f"#gpu-{index}").bounding_box() for index in (0, 1)]
        assert first["y"] == second["y"]


async def test_without_script_all_numbers_are_there(plain, showcase) -> None:
    snapshot = showcase.poller.snapshot
    async with visiting(plain, showcase.url) as (page, _):
        rows = len(snapshot.containers)
        assert await page.locator("#holder-rows tr").count() == rows
        assert await page.locator("#cards .figure").count() == 4
        assert await page.locator("#gpus > .gpu").count() == len(snapshot.gpus)
        assert not await page.locator("#pause").is_visible()
        assert not await page.locator("#theme").is_visible()


async def test_without_script_the_table_is_filtered(plain, showcase) -> None:
    async with visiting(plain, showcase.url) as (page, _):
        field = page.locator("form [name=q]")
        await field.fill("captions")
        await field.press("Enter")
        await page.wait_for_url("**q=captions**")
        assert await page.locator("#holder-rows tr").count() == 1
        assert "captions" in await page.locator("#holder-rows").inner_text()


async def test_names_from_the_cluster_stay_text_in_a_browser(window) -> None:
    ref = ContainerRef(HOSTILE, HOSTILE, HOSTILE)
    device = mig(HOSTILE).device
    rows = [holder("x", holder=ref, resource=HOSTILE), holder("x", device, holder=ref)]
    shown = snapshot(
        [gpu(sharing="time-slicing", model=HOSTILE), gpu(1)],
        rows,
        node={"name": HOSTILE, "unresolved": {HOSTILE: 1}},
        failing={"identity": HOSTILE},
    )
    server = Server(make_app(site_of(lambda: shown)), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        async with visiting(window, url.removesuffix("/")) as (page, _):
            assert await page.locator("h1").inner_text() == HOSTILE
            assert HOSTILE in await page.locator("#holder-rows").inner_text()
            assert await page.locator("img").count() == 0
            assert await page.evaluate("window.caught") is None
    finally:
        await server.stop()


async def test_paper_has_all_of_the_table_and_no_buttons(window, showcase) -> None:
    async with visiting(window, showcase.url, viewport=PAPER, color_scheme="dark") as (page, _):
        await page.emulate_media(media="print")
        assert await page.evaluate(_CUT_OFF) == []
        assert await page.locator(".button:visible, .field:visible").count() == 0
        assert await colour(page, "--card") == "rgb(255, 255, 255)"


async def test_it_follows_the_system_into_the_dark(window, showcase) -> None:
    found = []
    for scheme in ("light", "dark"):
        async with visiting(window, showcase.url, color_scheme=scheme) as (page, _):
            found.append(await colour(page, "--page"))
    assert found == ["rgb(245, 246, 248)", "rgb(13, 16, 21)"]


async def test_nothing_moves_with_reduced_motion(window, showcase) -> None:
    async with visiting(window, showcase.url, reduced_motion="reduce") as (page, _):
        assert await page.evaluate(_MOVING) == 0


async def test_the_watch_finds_what_must_not_happen(browser) -> None:
    async with node_of("l40s") as served:
        with pytest.raises(AssertionError) as failure:
            await misbehave(browser, served.url)
    for word in ("forbidden by the policy", "a slip", "404", "127.0.0.2"):
        assert word in str(failure.value)


async def misbehave(browser, url) -> None:
    """Break every rule of our pages."""
    async with looking(browser, url) as (page, watch):
        await page.goto("./")
        await page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">')")
        await page.evaluate("fetch('no-such-page').catch(() => 0)")
        await page.evaluate("fetch('http://127.0.0.2:9/elsewhere').catch(() => 0)")
        await page.evaluate("setTimeout(() => { throw new Error('a slip') })")
        while "a slip" not in str(watch.findings):
            await page.wait_for_timeout(20)


async def colour(page: Page, name: str) -> str:
    """Return a colour of the style sheet as the browser paints it."""
    return await page.evaluate(
        """(name) => {
          const probe = document.body.appendChild(document.createElement("i"));
          probe.style.color = `var(${name})`;
          const seen = getComputedStyle(probe).color;
          probe.remove();
          return seen;
        }""",
        name,
    )
