"""An open page in a browser: it follows the node, keeps the reader's place, and shows its age."""

import re
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from playwright.async_api import expect

from exporter.config import ListenAddress
from exporter.web.kit.http.assets import version
from exporter.web.kit.http.server import Server
from exporter.web.node import caches
from exporter.web.node.app import make_app
from exporter.web.node.parameters import Place
from tests.page.browser.site import looking, node_of
from tests.page.web.views_reading import gpu, holder, snapshot
from tests.site import site_of

# What a test that stops the server means to see.
CUT_OFF = (
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_CONNECTION_RESET",
    "ERR_EMPTY",
    # On a busy machine the script of the timelines is still being loaded.
    "ERR_CONTENT_LENGTH_MISMATCH",
)
STREAM = re.compile(r"/live/")
MARK = "element => { element.mark = 'same' }"
MARKED = "element => element.mark"
SECONDS = 1000


class Node:
    """A node whose snapshot the test chooses; its server stops and starts again on the same port."""

    def __init__(self) -> None:
        self.sequence = 0
        self.port = 0
        self.show()
        self.server = None

    def show(self, *pods, **options) -> None:
        """Publish a snapshot with these pods."""
        self.sequence += 1
        facts = {"sequence": self.sequence, "timestamp": 1_700_000_000.0 + self.sequence} | options
        self.snapshot = snapshot([gpu(0)], [holder(pod) for pod in pods], **facts)
        if self.sequence > 1 and self.server is not None:
            self.site.ticker.tick(self.snapshot)

    async def start(self) -> str:
        """Serve; another exporter begins each time."""
        self.site = site_of(lambda: self.snapshot)
        self.server = Server(make_app(self.site), ListenAddress("127.0.0.1", self.port))
        url = await self.server.start()
        self.port = int(url.rpartition(":")[2].removesuffix("/"))
        return url.removesuffix("/")

    async def stop(self) -> None:
        """Stop serving."""
        await self.server.stop()


@asynccontextmanager
async def node(*pods):
    """Serve a node with these pods."""
    made = Node()
    made.show(*pods)
    url = await made.start()
    try:
        yield made, url
    finally:
        await made.stop()


@asynccontextmanager
async def opened(browser, url, path="", **options):
    """Open a page, and wait until its stream is there."""
    async with looking(browser, url, **options) as (page, watch):
        async with page.expect_response(STREAM):
            await page.goto(f"{url}/{path}")
        yield page, watch


def rows(page):
    """Return the rows of holders."""
    return page.locator("#holder-rows > tr")


async def test_what_changes_on_the_node_changes_on_the_page(browser) -> None:
    async with node("pear") as (shown, url), opened(browser, url) as (page, _):
        await page.evaluate("window.mark = 'same'")
        await expect(rows(page)).to_have_count(1)
        shown.show("apple", "pear", "plum")
        await expect(rows(page)).to_have_count(3)
        names = await rows(page).evaluate_all("rows => rows.map(row => row.id)")
        drawn = (await shown.site.pages.drawing(Place())).lists["holder-rows"]
        assert names == list(drawn)
        shown.show()
        await expect(rows(page)).to_have_count(0)
        assert await page.evaluate("window.mark") == "same"


async def test_a_followed_page_equals_a_loaded_one(browser, monkeypatch) -> None:
    # Times on the page are in minutes: between two drawings one may pass.
    now = time.time()
    monkeypatch.setattr(caches, "time", SimpleNamespace(time=lambda: now, time_ns=time.time_ns))
    async with node_of("showcase", 0) as served, opened(browser, served.url) as (page, _):
        for second in (15, 30, 700):
            await served.poll(second)
        sequence = served.poller.snapshot.sequence
        await expect(page.locator("body")).to_have_attribute("data-sequence", re.compile(f"^{sequence}-"))
        differing = await page.evaluate(
            """async () => {
              const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
              const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
              const named = (root) => root.querySelectorAll("main [id], #name");
              const ids = (root) => [...named(root)].map((element) => element.id).join();
              if (ids(document) !== ids(fresh)) return `other elements: ${ids(document)} | ${ids(fresh)}`;
              return [...named(fresh)].filter((element) => !element.querySelector("[data-keep]"))
                .filter((element) => !document.getElementById(element.id).isEqualNode(element))
                .map((element) => element.id).join();
            }"""
        )
        assert differing == ""


async def test_updates_keep_focus_selection_and_open_details(browser) -> None:
    async with node("apple", "pear") as (shown, url), opened(browser, url, "gpu/GPU-0") as (page, _):
        details = page.locator("details").first
        await details.locator("summary").click()
        await rows(page).last.evaluate(MARK)
        link = page.locator("#name a").first
        await link.focus()
        await page.evaluate("getSelection().selectAllChildren(document.querySelector('#name code'))")
        shown.show("apple", "new", "pear")
        await expect(rows(page)).to_have_count(3)

        await expect(details).to_have_attribute("open", "")
        await expect(link).to_be_focused()
        assert await page.evaluate("getSelection().toString()") == "GPU-0"
        kept = await rows(page).evaluate_all("rows => rows.filter(row => row.mark === 'same').length")
        assert kept == 1


async def test_pause_holds_the_page_and_resume_catches_up(browser) -> None:
    async with node("apple") as (shown, url), opened(browser, url) as (page, _):
        button, says = page.locator("#pause"), page.locator("#connection")
        await button.click()
        await expect(button).to_have_attribute("aria-pressed", "true")
        await expect(button).to_have_text("Resume")
        await expect(says).to_have_text(re.compile(r"^paused at \d\d:\d\d:\d\d$"))
        before = await page.locator("body").get_attribute("data-sequence")
        shown.show("apple", "pear")
        shown.show("apple", "pear", "plum")
        async with looking(browser, url) as (other, _):
            await other.goto(url)
            await expect(rows(other)).to_have_count(3)
        await expect(rows(page)).to_have_count(1)
        assert await page.locator("body").get_attribute("data-sequence") == before

        await button.click()
        await expect(rows(page)).to_have_count(3)
        await expect(button).to_have_attribute("aria-pressed", "false")
        await expect(says).to_have_text("")
        shown.show()
        await expect(rows(page)).to_have_count(0)


@pytest.mark.slow
async def test_a_lost_connection_is_shown_and_restored(browser) -> None:
    async with node("apple") as (shown, url), opened(browser, url) as (page, watch):
        watch.expected = CUT_OFF
        await shown.stop()
        await expect(page.locator("#connection")).to_have_text("disconnected")
        await expect(page.locator("#connection-for")).to_have_text(re.compile(r"^\d+ s, retrying$"))
        await expect(rows(page)).to_have_count(1)
        shown.show("apple", "pear")
        await shown.start()
        await expect(rows(page)).to_have_count(2)
        await expect(page.locator("#connection")).to_have_text("")
        await expect(page.locator("#connection-for")).to_have_text("")


async def test_the_age_grows_by_the_servers_clock(browser) -> None:
    """Whatever the browser's clock is."""
    async with node("apple") as (shown, url), looking(browser, url) as (page, _):
        await page.clock.install(time=0)
        async with page.expect_response(STREAM):
            await page.goto(url)
        age = page.locator("#status time")
        shown.show("pear", timestamp=await page.evaluate(SERVER_NOW))
        await expect(age).to_have_text(re.compile(r"^polled \d+ s ago$"))
        await page.clock.fast_forward(100 * SECONDS)
        await expect(age).to_have_text(re.compile("^polled [1-9] min ago$"))
        await expect(page.locator("#status .age")).to_have_class(re.compile("old"))


# The server's clock as the page knows it, which is not the browser's.
SERVER_NOW = "Number(document.body.dataset.now)"


async def test_without_streams_the_page_is_fetched(browser) -> None:
    async with node("apple") as (shown, url), looking(browser, url) as (page, watch):
        watch.expected = ("503",)
        await page.clock.install()
        await page.route(STREAM, lambda route: route.fulfill(status=503))
        await page.goto(url)
        shown.show("apple", "pear")
        await page.clock.run_for(20 * SECONDS)
        await expect(page.locator("#connection")).to_have_text("No live stream; fetched every 10 s")
        await expect(rows(page)).to_have_count(2)
        shown.show()
        await page.clock.run_for(12 * SECONDS)
        await expect(rows(page)).to_have_count(0)
        await expect(page.locator("#connection-for")).to_have_text("")


async def test_a_removed_gpu_keeps_its_last_state_and_is_marked(browser) -> None:
    async with node("apple") as (shown, url), opened(browser, url, "gpu/GPU-0") as (page, _):
        shown.snapshot = snapshot([], [], sequence=9)
        shown.site.ticker.tick(shown.snapshot)
        await expect(page.locator("#connection")).to_have_text(re.compile("^No longer there; "))
        await expect(rows(page)).to_have_count(1)
        polled = "new Date(document.body.dataset.timestamp * 1000).toTimeString().slice(0, 8)"
        text = f"No longer there; last seen at {await page.evaluate(polled)}"
        await expect(page.locator("#connection")).to_have_text(text)
        await page.clock.run_for(70 * SECONDS)
        await expect(page.locator("#connection")).to_have_text(text)


async def test_another_query_is_shown_in_place(browser) -> None:
    async with node("apple", "pear") as (shown, url), opened(browser, url) as (page, _):
        await page.evaluate("window.mark = 'same'")
        module = await page.evaluate("[...document.querySelectorAll('[href*=\"live.js\"]')][0].href")
        async with page.expect_response(re.compile(r"/live/\?q=pear&since=")):
            await page.evaluate(f"import('{module}').then((live) => live.navigate('?q=pear'))")
        await expect(rows(page)).to_have_count(1)
        assert page.url.endswith("/?q=pear")
        shown.show("apple", "pear", "pears")
        await expect(rows(page)).to_have_count(2)
        await page.go_back()
        await expect(rows(page)).to_have_count(3)
        assert await page.evaluate("window.mark") == "same"


async def test_a_failed_step_back_is_retried(browser) -> None:
    """The address is that of the other page already."""
    async with node("apple", "pear") as (_, url), looking(browser, url) as (page, watch):
        watch.expected = ("ERR_FAILED",)
        await page.clock.install()
        async with page.expect_response(STREAM):
            await page.goto(f"{url}/")
        module = await page.evaluate("[...document.querySelectorAll('[href*=\"live.js\"]')][0].href")
        await page.evaluate(f"import('{module}').then((live) => live.navigate('?q=pear'))")
        await expect(rows(page)).to_have_count(1)
        await page.route(f"{url}/", lambda route: route.abort())
        await page.go_back()
        await expect(page.locator("#connection")).to_have_text("disconnected")
        await expect(rows(page)).to_have_count(1)
        await page.unroute(f"{url}/")
        # What is being fetched while so much time passes at once is given up, and asked for again.
        while await rows(page).count() < 2:
            await page.clock.run_for(90 * SECONDS)


async def test_a_page_of_an_older_version_is_reloaded(browser) -> None:
    async with node("apple") as (_, url), looking(browser, url) as (page, _watch):

        async def older(route) -> None:
            answer = await route.fetch()
            text = await answer.text()
            await route.fulfill(response=answer, body=text.replace('data-version="', 'data-version="older '))

        await page.route(f"{url}/", older, times=1)
        await page.goto(url)
        await expect(page.locator("body")).to_have_attribute("data-version", version())


async def test_a_hidden_page_closes_its_stream(browser) -> None:
    async with node("apple") as (shown, url), looking(browser, url) as (page, watch):
        await page.clock.install()
        async with page.expect_response(STREAM):
            await page.goto(url)
        await turn(page, hidden=True)
        async with page.expect_event("requestfailed", of_stream):
            await page.clock.run_for(21 * SECONDS)
        shown.show("apple", "pear")
        before = len(watch.requests)
        await turn(page, hidden=False)
        await expect(rows(page)).to_have_count(2)
        assert sum(bool(STREAM.search(request)) for request in watch.requests[before:]) == 1


def of_stream(request) -> bool:
    """Return whether a request was for a stream."""
    return STREAM.search(request.url) is not None


async def turn(page, *, hidden) -> None:
    """Hide the page as another tab does, or show it again."""
    await page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


@pytest.mark.parametrize("script", [True, False])
async def test_the_button_is_there_with_script_only(browser, script) -> None:
    async with node("apple") as (_, url), looking(browser, url, java_script_enabled=script) as (page, _watch):
        await page.goto(url)

        await expect(page.locator("#pause")).to_be_visible(visible=script)
        await expect(page.locator(".connection")).to_be_hidden()
