"""What is kept of the page of the cluster, and for how long."""

import json
import time
from types import SimpleNamespace

import pytest

from exporter.fleet.json_data import fleet_json
from exporter.fleet.model import Fleet, IdleHolder, NodeKey
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.openapi import document
from exporter.fleet.pages.routes import FleetPages
from exporter.fleet.pages.tables import Orders
from exporter.fleet.watch import FleetRead
from exporter.model import ContainerRef
from exporter.web.kit.html import page
from exporter.web.kit.live.broadcaster import OpenPage
from exporter.web.kit.live.events import change


async def _drawn(pages: FleetPages) -> str:
    return page(await pages.drawing(Orders()), "")


async def _asked_for(pages: FleetPages) -> str:
    return (await pages.html(Orders())).decode()


@pytest.mark.parametrize("shown", [_drawn, _asked_for], ids=["stream", "page"])
async def test_a_new_read_is_shown_within_the_second_of_the_one_before(monkeypatch, shown) -> None:
    """A drawing is kept for readers of the same read only."""
    monkeypatch.setattr("exporter.fleet.pages.routes.time", SimpleNamespace(time=lambda: 1010.25))
    looks = [FleetRead(reads=number, error=f"Prometheus refuses: {number}") for number in (1, 2)]
    pages = FleetPages(lambda: looks[0], NodeUrl())
    assert "Prometheus refuses: 1" in await shown(pages)
    del looks[0]
    assert "Prometheus refuses: 2" in await shown(pages)


async def test_open_pages_get_the_time_of_the_server_with_each_change() -> None:
    """The script computes the age of the data from it."""
    before = time.time()
    opened = OpenPage(FleetPages(lambda: FleetRead(read_at=700.0), NodeUrl()), Orders())
    drawn = await opened.drawn()
    assert drawn is not None
    for message in (change(None, drawn), change(drawn.drawing, drawn)):
        fields = dict(line.split(": ", 1) for line in message.plain.decode().splitlines() if line)
        data = json.loads(fields["data"])
        assert before - 1 <= data["now"] <= time.time() + 1
        assert data["timestamp"] == 700.0


def test_the_schema_of_idle_holders_has_the_fields_of_the_document() -> None:
    holder = IdleHolder(
        node=NodeKey("", "a"),
        holder=ContainerRef("ml", "train", "main"),
        uuid="GPU-0",
        mig_uuid="",
        gpu="0",
        resource="nvidia.com/gpu",
        seconds=700.0,
        memory_held=None,
        memory_used=None,
        compute_held=None,
    )
    (listed,) = fleet_json(Fleet(at=0.0, window=1.0, idle=(holder,)))["idle_holders"]["listed"]
    assert listed.keys() == document()["components"]["schemas"]["IdleHolder"]["properties"].keys()
