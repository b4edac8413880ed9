"""A holder that ends while its page is open, and the page that stays, in a browser."""

import re

import pytest
from playwright.async_api import expect

from exporter.model import PodRow
from tests.page.browser.axe import faults
from tests.page.browser.site import NARROW, PHONE, WIDE, looking, overflow
from tests.page.browser.test_live import node

LABELS = (("app.kubernetes.io/name", "x" * 63), ("team", '"><img src=x onerror=alert(1)>'), ("tier", "1"))


def publish(shown, *pods) -> None:
    """Publish a snapshot of a node whose kubelet lists all pods."""
    rows = tuple(PodRow(namespace="ml", name=pod, uid="", labels=LABELS) for pod in pods)
    shown.show(*pods, node={"unlisted_pods": 0}, pods=rows)
    shown.site.pages.ended.record(shown.snapshot)


async def test_an_open_page_turns_into_that_of_an_ended_holder(browser) -> None:
    """Without a reload, and with a link from the node; a pod of the same name is the holder again."""
    async with node("apple", "pear") as (shown, url), looking(browser, url) as (page, _):
        publish(shown, "apple", "pear")
        await page.goto(f"{url}/holder/ml/apple/main")
        await page.evaluate("window.mark = 'same'")
        await expect(page.locator("#answers")).to_contain_text("Which slice would fit it?")
        publish(shown, "pear")
        await expect(page.locator("#answers")).to_contain_text("No: it ended")
        await expect(page.locator("#devices-name")).to_have_text("What it held and used")
        await expect(page.locator("#legend")).to_be_hidden()
        await expect(page).to_have_title(re.compile(r"^ml/apple \(ended\)"))
        assert await page.locator(".on").count() == 1
        publish(shown, "apple", "pear")
        await expect(page.locator("#answers")).to_contain_text("Which slice would fit it?")
        await expect(page.locator("#legend")).to_be_visible()
        assert await page.evaluate("window.mark") == "same"

        publish(shown, "pear")
        await page.goto(url)
        await page.locator("#ended a").click()
        await page.wait_for_url("**/holder/ml/apple/main")
        await expect(page.locator("#answers")).to_contain_text("No: it ended")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_with_ended_holders_and_labels_are_accessible_and_fit(browser, scheme) -> None:
    async with node("apple", "pear") as (shown, url):
        publish(shown, "apple", "pear")
        publish(shown, "pear")
        async with looking(browser, url, color_scheme=scheme) as (page, _):
            for path in ("", "holder/ml/apple/main", "holder/ml/pear/main"):
                await page.goto(f"{url}/{path}")
                assert await faults(page) == []
                for viewport in (WIDE, PHONE, NARROW):
                    await page.set_viewport_size(viewport)
                    assert await overflow(page) <= 0
