"""What is kept of the page of the cluster, and for how long."""

from types import SimpleNamespace

import pytest

from exporter.fleet.targets import NodeLinks
from exporter.fleet.watch import Look
from exporter.web.cluster.fleet_tables import Orders
from exporter.web.cluster.routes import FleetPages
from exporter.web.html import page


async def _drawn(pages: FleetPages) -> str:
    return page(await pages.drawing(Orders()), "")


async def _asked_for(pages: FleetPages) -> str:
    return (await pages.html(Orders())).decode()


@pytest.mark.parametrize("shown", [_drawn, _asked_for], ids=["stream", "page"])
async def test_a_new_look_is_shown_within_the_second_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, shown
) -> None:
    """What was drawn a moment ago is kept for readers of that look, not for those of the next."""
    monkeypatch.setattr("exporter.web.cluster.routes.time", SimpleNamespace(time=lambda: 1010.25))
    looks = [Look(looks=number, error=f"Prometheus refuses: {number}") for number in (1, 2)]
    pages = FleetPages(lambda: looks[0], NodeLinks(), idle_after=600.0)
    assert "Prometheus refuses: 1" in await shown(pages)
    del looks[0]
    assert "Prometheus refuses: 2" in await shown(pages)
