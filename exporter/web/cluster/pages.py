"""The page of a cluster, made once for each look at it, or each second where it tells ages."""

import json
import time
from collections.abc import Callable
from typing import Any

from exporter.fleet.formats import fleet_json, fleet_text
from exporter.fleet.links import NodeLinks
from exporter.fleet.watch import Look
from exporter.threads import in_thread
from exporter.web.drawing import Drawing, Opened
from exporter.web.html import page
from exporter.web.serving.turns import Turns, Work
from exporter.web.serving.version import version
from exporter.web.views.fleet.page import FleetScene, fleet_drawing
from exporter.web.views.fleet.tables import Orders

# Orders of all tables together; those that somebody makes up are more.
_KEPT = 64


class FleetPages:
    """The page of the newest look, which ``current`` returns."""

    def __init__(self, current: Callable[[], Look], links: NodeLinks, *, idle_after: float) -> None:
        self._current = current
        self._links = links
        self._idle_after = idle_after
        self._made: dict[tuple[Any, ...], Work[Any]] = {}
        self._turns = Turns()

    @property
    def look(self) -> Look:
        """The look that is shown."""
        return self._current()

    @property
    def tag(self) -> str:
        """A name for this look, which that of no other hub is."""
        look = self.look
        return f"{look.looks}-{look.read_at or 0:.3f}-{'' if look.fleet else 'nothing'}"

    async def drawing(self, orders: Orders, *, refusing: bool = False) -> Drawing:
        """Draw the page; ``refusing`` answers 503 where too many orders of it wait to be drawn."""
        scene = self._scene(orders)
        key = (orders, self.tag, int(scene.now))
        if refusing and key not in self._made:
            self._turns.refuse_where_full()
        made: Drawing = await self._once(key, lambda: fleet_drawing(scene))
        return made

    async def html(self, orders: Orders) -> bytes:
        """Give the page as HTML."""
        look = self.look
        opened = Opened(
            live="live/fleet",
            tag=self.tag,
            timestamp=look.read_at or 0.0,
            now=time.time(),
            interval=look.interval,
            version=version(),
        )
        # In its own order it is drawn once in a second whoever asks for it, so nobody is refused it.
        drawing = await self.drawing(orders, refusing=orders != Orders())
        key = ("html", orders, opened.tag, int(opened.now))
        made: bytes = await self._once(key, lambda: page(drawing, "", opened).encode())
        return made

    async def text(self) -> bytes:
        """Give the cluster as text for a terminal; without a look at it, why there is none."""
        look = self.look
        if look.fleet is None:
            return f"{look.error or 'the first look at the cluster is under way'}\n".encode()
        before = f"! Prometheus cannot be asked now: {look.error}\n\n" if look.error else ""
        fleet = look.fleet

        def write() -> bytes:
            return (before + fleet_text(fleet)).encode()

        made: bytes = await self._once(("text", self.tag), write)
        return made

    async def document(self) -> bytes:
        """Give the cluster as JSON: ``fleet`` is null without a look at it."""
        look = self.look
        made: bytes = await self._once(("json", self.tag), lambda: json.dumps(look_json(look)).encode())
        return made

    def _scene(self, orders: Orders) -> FleetScene:
        return FleetScene(self.look, time.time(), self._idle_after, self._links, orders)

    async def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        work = self._made.get(key)
        if work is None:
            while len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            work = self._made[key] = Work(
                lambda: in_thread(make), lambda failed: self._drop(key, failed), self._turns
            )
        return await work.wait()

    def _drop(self, key: tuple[Any, ...], work: Work[Any]) -> None:
        """Have what could not be made tried again by the next who asks."""
        if self._made.get(key) is work:
            del self._made[key]


def look_json(look: Look) -> dict[str, Any]:
    """Give a look as plain data of JSON."""
    return {
        "read_at": look.read_at,
        "error": look.error or None,
        "failing_since": look.failing_since,
        "fleet": None if look.fleet is None else fleet_json(look.fleet),
    }
