"""One browser and one event loop for all tests here, since a browser belongs to its loop.

A new window costs several times what a page does, and a new node as much: tests that only read share those
of their module.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.page.browser.site import Watch, chromium, looking, node_of
from tests.together.end_to_end.serving import Served
from tests.waiting import LIMIT_SECONDS

HERE = Path(__file__).parent
expect.set_options(timeout=LIMIT_SECONDS * 1000)
# All nodes share one process, which has compiled their scripts already, without helper threads: every
# processor has tests to run.
OPTIONS = ("--no-sandbox", "--renderer-process-limit=1", "--js-flags=--single-threaded")


def pytest_collection_modifyitems(items) -> None:
    """Run the tests of this folder in one loop."""
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start the browser."""
    path = chromium()
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield started
        await started.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(browser: Browser) -> AsyncIterator[tuple[Page, Watch]]:
    """Yield a window that goes from node to node."""
    async with looking(browser, "") as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def showcase() -> AsyncIterator[Served]:
    """Serve the node that has something of everything; tests must not poll it."""
    async with node_of("showcase") as served:
        yield served
