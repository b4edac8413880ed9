"""A GPU with more holders than fit: nothing is wider than the window, and no number is cut."""

import pytest

from exporter.config import ListenAddress
from exporter.model import SliceCount
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.page.browser.site import PHONE, WIDE, visiting
from tests.page.web.views_reading import gpu, holder, snapshot
from tests.site import site_of

# The numbers on marks of which a part is seen and a part is not.
_CUT_NUMBERS = """[...document.querySelectorAll(".marks li")].filter((mark) => {
  const range = document.createRange();
  range.selectNodeContents(mark);
  const box = mark.getBoundingClientRect();
  return [...range.getClientRects()].some((text) => text.width > 0 && text.top < box.bottom - 4
    && (text.left < box.left - 1 || text.right > box.right + 1));
}).map((mark) => mark.textContent)"""

_RIGHT_OF_WINDOW = """[...document.querySelectorAll(".marks, .marks li")]
  .filter((each) => each.getBoundingClientRect().right > window.innerWidth).length"""


@pytest.mark.parametrize(("held", "viewport"), [(8, WIDE), (30, PHONE), (100, PHONE)], ids=["8", "30", "100"])
async def test_marks_fit_and_their_numbers_are_whole_or_hidden(window, held, viewport) -> None:
    """A part of a number is another number."""
    count = SliceCount("nvidia.com/gpu.shared", held + held // 4, held)
    one = gpu(sharing="time-slicing", slices=(count,), holders=held)
    facts = {"sharing": "time-slicing", "isolation": "none", "memory_entitled": None}
    rows = [holder(f"pod-{each:03}", device="GPU-0", **facts) for each in range(held)]
    shown = snapshot([one], rows)
    server = Server(make_app(site_of(lambda: shown)), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        async with visiting(window, url.removesuffix("/"), viewport=viewport) as (page, _):
            assert await page.locator(".marks li").count() >= held
            assert await page.evaluate(_RIGHT_OF_WINDOW) == 0
            assert await page.evaluate(_CUT_NUMBERS) == []
            if held == 8:
                assert "8" in await page.locator(".marks").inner_text()
    finally:
        await server.stop()
