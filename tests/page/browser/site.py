"""Opening pages in a real browser, and collecting errors, failed requests and policy violations."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, ViewportSize

from exporter.demo.scenario.catalog import load
from tests.together.end_to_end.serving import Served, serving
from tests.tools import tool
from tests.waiting import LIMIT_SECONDS

WIDE: ViewportSize = {"width": 1400, "height": 900}
PHONE: ViewportSize = {"width": 380, "height": 800}
NARROW: ViewportSize = {"width": 360, "height": 740}
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Listened for in the page: what a policy forbids is only seen there.
_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`forbidden by the policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


def chromium() -> str:
    """Return the path of a browser."""
    return tool(*_BROWSERS)


@dataclass
class Watch:
    """What went wrong in the pages of a context whose server is at ``url``, and all its ``requests``.

    ``expected`` are words of findings that a test causes on purpose, such as those of a stopped server.
    """

    url: str
    findings: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    async def follow(self, context: BrowserContext) -> None:
        """Listen to all pages of a context, also future ones."""
        await context.add_init_script(_REPORT_VIOLATIONS)
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.findings.append(f"page error: {error.error}"))
        context.on("request", self._asked)
        context.on("requestfailed", self._failed)
        context.on(
            "response",
            lambda answer: (
                self.findings.append(f"{answer.status} for {answer.url}") if answer.status >= 400 else None
            ),
        )

    def begin(self, url: str) -> None:
        """Drop all findings, and go on with the site at ``url``."""
        self.url, self.findings, self.requests = url, [], []

    def check(self, expected: Sequence[str]) -> None:
        """Fail if there is a finding that is not expected."""
        found = [each for each in self.findings if not any(word in each for word in expected)]
        assert not found, "\n".join(found)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.findings.append(f"console {message.type}: {message.text} at {message.location.get('url')}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.findings.append(f"a request to another origin: {request.url}")

    def _failed(self, request: Request) -> None:
        # A stream, or what is under way when a page is left, ends so and is no fault.
        if request.failure != "net::ERR_ABORTED":
            self.findings.append(f"{request.url} failed: {request.failure}")


@asynccontextmanager
async def looking(browser: Browser, url: str, **options: Any) -> AsyncIterator[tuple[Page, Watch]]:
    """Open a window on the site at ``url``; unexpected findings fail the test at the end.

    ``options`` are those of a context: viewport, color_scheme, java_script_enabled, ...
    """
    context = await browser.new_context(**({"viewport": WIDE, "base_url": f"{url}/"} | options))
    # If script is off the browser fetches modules for nothing, and blames the policy.
    expected = () if options.get("java_script_enabled", True) else ("failed: csp",)
    watch = Watch(url, expected=expected)
    await watch.follow(context)
    try:
        page = await context.new_page()
        page.set_default_timeout(LIMIT_SECONDS * 1000)
        yield page, watch
    finally:
        await context.close()
    watch.check(watch.expected)


@asynccontextmanager
async def visiting(
    window: tuple[Page, Watch],
    url: str,
    path: str = "",
    *,
    viewport: ViewportSize = WIDE,
    color_scheme: Literal["light", "dark"] = "light",
    reduced_motion: Literal["reduce", "no-preference"] = "no-preference",
) -> AsyncIterator[tuple[Page, Watch]]:
    """Open a page of the site at ``url`` in an existing window, and leave it at the end.

    Unexpected findings fail the test. The window keeps what pages store.
    """
    page, watch = window
    usual = watch.expected
    watch.begin(url)
    await page.set_viewport_size(viewport)
    await page.emulate_media(media="screen", color_scheme=color_scheme, reduced_motion=reduced_motion)
    try:
        await page.goto(f"{url}/{path}")
        yield page, watch
    finally:
        await page.goto("about:blank")
        expected, watch.expected = watch.expected, usual
    watch.check(expected)


@asynccontextmanager
async def node_of(scenario: str, *seconds: float) -> AsyncIterator[Served]:
    """Serve a scenario in this process, polled at these seconds only."""
    async with serving(load(scenario)) as served:
        for second in seconds or (0.0, 15.0, 30.0):
            await served.poll(second)
        yield served


async def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    width: int = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return width


async def follow(page: Page, place: str) -> None:
    """Follow the first link on the node's page to a page of a kind: gpu, holder or doctor."""
    try:
        await page.locator(f"a[href^='{place}']").first.click()
        await page.wait_for_url(f"**/{place}**")
    except Error:
        pytest.fail(f"no link leads to a page of kind {place}")
