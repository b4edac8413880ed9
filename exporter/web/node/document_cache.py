"""The documents of the API, made in a thread: once per snapshot, or once per second if they show ages."""

import json
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from exporter.advice.model import Advice
from exporter.concurrency import in_thread
from exporter.doctor import Report
from exporter.formats.advice import advice_csv, advice_document
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.model import ContainerRef, Snapshot
from exporter.web.kit.render_queue import TaskCache

Made = TypeVar("Made")
Advise = Callable[[Snapshot, ContainerRef | None], Sequence[Advice]]
"""Returns the advice on one container, or on all."""


@dataclass(eq=False)
class DocumentCache:
    """The documents of the snapshot that ``current`` returns."""

    current: Callable[[], Snapshot]
    _: KW_ONLY
    idle_after: float = 600.0  # seconds without compute until a holder is idle
    # Judges which slice would fit each holder.
    advise: Advise = lambda _snapshot, _only: ()
    report: Callable[[], Report] = lambda: Report("", ())  # the doctor's report on the last poll
    price: float | None = None  # of a GPU-hour

    def __post_init__(self) -> None:
        self._of_snapshot = TaskCache()
        self._of_second = TaskCache()

    async def snapshot_as(self, form: str) -> bytes:
        """Return the snapshot as ``json``, its containers as ``csv``, or the node as ``text``, with ages."""
        snapshot, now, idle_after = self.current(), time.time(), self.idle_after
        make: Callable[[], str] = {
            "json": lambda: json.dumps(snapshot_json(snapshot, idle_after=idle_after)),
            "csv": lambda: snapshot_csv(snapshot, idle_after=idle_after),
            "text": lambda: snapshot_text(snapshot, now=now, idle_after=idle_after),
        }[form]
        once = self._once_a_second if form == "text" else self._once
        return await once(form, lambda: make().encode())

    async def advice_as(self, form: str) -> bytes:
        """Return the advice on all holders as ``json`` or ``csv``."""
        snapshot, price = self.current(), self.price

        def make() -> bytes:
            advices = self.advise(snapshot, None)
            if form == "csv":
                return advice_csv(advices).encode()
            return json.dumps(advice_document(advices, snapshot.timestamp, price)).encode()

        return await self._once(("advice", form), make)

    async def doctor(self) -> Report:
        """Return the doctor's report, which shows ages."""
        return await self._once_a_second("report", self.report)

    async def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        self._of_snapshot.renew(self.current())
        return await self._of_snapshot.start(key, lambda: in_thread(make)).wait()

    async def _once_a_second(self, key: Hashable, make: Callable[[], Made]) -> Made:
        self._of_second.renew(self.current(), int(time.time()))
        return await self._of_second.start(key, lambda: in_thread(make)).wait()
