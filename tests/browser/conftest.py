"""One browser for all tests here, and one event loop, since a browser belongs to the loop of its start.

A window of its own costs a test several times what a page does, and a node of its own as much: whoever only
looks takes those of the module.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.browser.site import Watch, chromium, looking, node_of
from tests.end_to_end.serving import Served

HERE = Path(__file__).parent
# Nodes take turns in one process, which has compiled their scripts already. Threads that help it would cost
# more than they bring: every processor has tests to run.
OPTIONS = ("--no-sandbox", "--renderer-process-limit=1", "--js-flags=--single-threaded")


def pytest_collection_modifyitems(items) -> None:
    """Have the tests of this folder run in one loop."""
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
    """Give a window that goes from node to node."""
    async with looking(browser, "") as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def showcase() -> AsyncIterator[Served]:
    """Serve the node that has something of everything; nobody may poll it."""
    async with node_of("showcase") as served:
        yield served
