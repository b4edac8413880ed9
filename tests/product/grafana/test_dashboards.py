"""Our dashboards in a real Grafana, on fake nodes and a real Prometheus: every panel draws, no request fails.

``make grafana GRAFANA=FOLDER`` names the folder whose ``bin`` has the program of Grafana 10.0 or newer. With
``PICTURES=docs/screenshots`` it also takes the pictures of the documentation, in two widths.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Response, sync_playwright

from tests.page.browser.site import chromium
from tests.tools import ROOT

PROGRAM = Path(os.environ["GRAFANA"]) / "bin"
DASHBOARDS = sorted(path.stem for path in (ROOT / "dashboards/json").glob("*.json"))
LOAD_SECONDS = 300.0
# After this time rules over ten minutes have values, and Prometheus has a few samples of everything.
DATA_SECONDS = float(os.environ.get("GRAFANA_DATA_SECONDS", "120"))
# A dashboard is loaded once it has sent no request for this time.
QUIET_SECONDS = 3.0
VIEWPORT = {"width": 1600, "height": 6000}
PICTURES = os.environ.get("PICTURES", "")
# The first width is that of the pictures shown, the second that of a small screen.
WIDTHS, LONGEST = {1600: "", 1366: "-narrow"}, 1800
SCREENS = (1366, 1600, 1920)
PANELS = '[data-testid^="data-testid Panel header"]'
# The truncated parts of a panel: its title, texts of tables, and tables that must be scrolled sideways. The
# handle that changes the width of a column reaches beyond its heading.
TRUNCATED = """panel => [
    ...panel.querySelectorAll('h2, h2 *, [role="table"] *, [role="grid"], [role="grid"] *')]
    .filter(each => each.role !== "columnheader" && each.scrollWidth > each.clientWidth + 2)
    .filter(each => each.clientWidth > 0 && getComputedStyle(each).overflowX !== "visible")
    .map(each => `${each.innerText.slice(0, 60)} (${each.clientWidth} of ${each.scrollWidth} pixels)`)"""
# Before and after Grafana had names for rows.
FOLDED = '.dashboard-row--collapsed > button, [aria-label^="Expand row"]'
BROKEN = '[data-testid*="Panel status error"], [aria-label="Panel status"]'


@pytest.fixture(scope="module")
def grafana() -> Iterator[str]:
    """Run the whole stack with this Grafana; return its URL once there is data to draw."""
    with _stack() as url:
        time.sleep(DATA_SECONDS)
        yield url


@contextmanager
def _stack() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "scripts/stack"],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{PROGRAM}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if match := re.match(r"Grafana\s+(http://\S+)", line):
                address = urlsplit(match[1])
                yield f"{address.scheme}://{address.netloc}"
                return
        raise AssertionError("the stack has no Grafana: its output is above")
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


def _wait_until_loaded(page: Page, requests: list[float]) -> None:
    """Wait until the page has panels and has sent no request for QUIET_SECONDS."""
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        page.wait_for_timeout(250)
        if page.locator(PANELS).count() and time.monotonic() - requests[-1] > QUIET_SECONDS:
            return
    raise AssertionError(f"{page.url} is not loaded after {LOAD_SECONDS:g} s")


def _take_pictures(page: Page, name: str) -> None:
    for width, suffix in WIDTHS.items():
        page.set_viewport_size(VIEWPORT | {"width": width})
        page.wait_for_timeout(2000)
        boxes = [box for panel in page.locator(PANELS).all() if (box := panel.bounding_box())]
        end = max(box["y"] + box["height"] for box in boxes) + 8
        clip = {"x": 0, "y": 0, "width": width, "height": min(end, LONGEST)}
        page.screenshot(path=ROOT / PICTURES / f"{name}{suffix}.png", clip=clip)
    page.set_viewport_size(VIEWPORT)


def _truncated(page: Page) -> list[str]:
    """Return the truncated parts of panels on screens of several widths."""
    truncated = []
    for width in SCREENS:
        page.set_viewport_size(VIEWPORT | {"width": width})
        page.wait_for_timeout(2000)
        for panel in page.locator(PANELS).all():
            title = str(panel.get_attribute("data-testid")).removeprefix("data-testid Panel header ")
            truncated += [f"{width} pixels, {title}: {text!r}" for text in panel.evaluate(TRUNCATED)]
    return truncated


@pytest.mark.tools
@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_draws(grafana: str, browser: Browser, name: str, theme: str, tmp_path: Path) -> None:
    """With all rows: no panel has an error, no request fails, and no table is truncated on usual screens."""
    page = browser.new_context(viewport=VIEWPORT).new_page()
    requests, failed = [time.monotonic()], []

    def answered(response: Response) -> None:
        requests.append(time.monotonic())
        if "/api/" in response.url and response.status >= 400:
            failed.append(f"{response.status} for {response.url}: {response.request.post_data or ''}"[:600])

    page.on("response", answered)
    page.goto(f"{grafana}/d/{name}?from=now-15m&to=now&theme={theme}&kiosk")
    _wait_until_loaded(page, requests)
    if PICTURES:
        _take_pictures(page, f"{name.replace('gpuslice', 'dashboard')}-{theme}")
    while (folded := page.locator(FOLDED)).count():
        folded.first.click()
        page.wait_for_timeout(400)
    _wait_until_loaded(page, requests)
    page.screenshot(path=tmp_path / f"{name}-{theme}.png")
    titles = [
        panel.get_attribute("data-testid")
        for panel in page.locator(PANELS).all()
        if panel.locator(BROKEN).count()
    ]
    assert not failed, "\n".join(failed)
    assert not titles
    truncated = _truncated(page)
    assert not truncated, "\n".join(truncated)
    page.context.close()
