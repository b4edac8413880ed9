"""What axe-core finds on the pages of nodes that differ, in light and dark, wide and narrow."""

import pytest

from tests.page.browser.axe import faults
from tests.page.browser.site import PHONE, WIDE, node_of, visiting
from tests.page.web.views_reading import SCENARIOS


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [*SCENARIOS, "showcase"])
async def test_axe_finds_nothing_serious_on_a_node(window, scenario) -> None:
    # After 700 seconds the showcase has holders in every state.
    async with node_of(scenario, 0.0, 1.0, 700.0) as served:
        for scheme, size in (("light", WIDE), ("dark", PHONE)):
            async with visiting(window, served.url, color_scheme=scheme, viewport=size) as (page, _):
                assert await faults(page) == [], scheme
