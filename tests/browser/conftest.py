"""One browser for all tests here, and one event loop, since a browser belongs to the loop of its start."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browser.site import chromium

HERE = Path(__file__).parent


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
        started = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        await started.close()
