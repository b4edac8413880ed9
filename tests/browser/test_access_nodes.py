"""The page of a node for everyone: what axe-core finds. In a file of its own, since it takes long."""

import pytest

from tests.browser.axe import faults
from tests.browser.site import PHONE, WIDE, node_of, visiting


# Each has a sort of picture, notice or empty state that the others lack. The showcase is looked at elsewhere.
DIFFERENT = (
    "a100-mig-mixed",
    "t4-timeslicing",
    "sick-gpus",
    "lost-gpu",
    "gke",
    "no-gpu",
    "hami-vendors",
    "elastic-gpu",
    "vgpu-host",
    "mi300x-cpx",
    "dra",
)


@pytest.mark.parametrize("scenario", DIFFERENT)
async def test_axe_finds_nothing_serious_on_a_node(window, scenario) -> None:
    """In light and dark, on a wide screen and on a phone."""
    async with node_of(scenario) as served:
        for scheme, size in (("light", WIDE), ("dark", PHONE)):
            async with visiting(window, served.url, color_scheme=scheme, viewport=size) as (page, _):
                assert await faults(page) == [], scheme
