"""A page at an address without HTTPS that is not localhost, as most nodes have."""

from aiohttp import ClientSession

from tests.page.browser.site import looking, node_of

HEADER = "Cross-Origin-Opener-Policy"


async def test_the_console_is_quiet_at_an_untrusted_address(browser) -> None:
    """Browsers complain about headers that they heed at trusted addresses only."""
    async with node_of("t4-timeslicing", 0) as served:
        # This leads to the same server, but browsers do not count it as their own machine.
        url = served.url.replace("127.0.0.1", "0.0.0.0")
        async with looking(browser, url) as (page, _):
            await page.goto("./")
            assert await page.evaluate("window.isSecureContext") is False
            assert await page.title()


async def test_other_windows_cannot_reach_the_page_at_a_trusted_address(browser) -> None:
    async with node_of("t4-timeslicing", 0) as served, looking(browser, served.url) as (page, _):
        answer = await page.goto("./")
        assert (await answer.all_headers())[HEADER.lower()] == "same-origin"


async def test_programs_get_no_header_about_windows() -> None:
    async with node_of("t4-timeslicing", 0) as served, ClientSession() as client:
        for path in ("/", "/gpu/none", "/api/v1/snapshot"):
            async with client.get(served.url + path) as response:
                assert HEADER not in response.headers
