"""Clocks that jump while a page is open: it still shows the age of the data."""

import re
import time

import pytest
from playwright.async_api import expect

from tests.page.browser.site import looking, node_of

STREAM = re.compile(r"/live/")


@pytest.mark.parametrize("hours", [3, -3])
async def test_a_clock_jump_is_corrected_by_the_next_polls(browser, hours) -> None:
    """A jump of the browser's clock looks the same as one of the node's."""
    async with node_of("t4-timeslicing", 0) as served, looking(browser, served.url) as (page, _):
        await page.clock.install()
        async with page.expect_response(STREAM):
            await page.goto("./")
        await page.clock.set_system_time(time.time() + hours * 3600)
        for second in (5, 10, 15):
            await served.poll(second)
            shown = re.compile(f"^{served.poller.snapshot.sequence}-")
            await expect(page.locator("body")).to_have_attribute("data-sequence", shown)
        await expect(page.locator("#status time")).to_have_text(re.compile(r"^polled \d+ s ago$"))
        await page.clock.fast_forward(100_000)
        await expect(page.locator("#status time")).to_have_text(re.compile("^polled [1-9] min ago$"))
