"""The doctor of a program that goes on polling: one report of each poll, made when somebody asks for it."""

import threading
from collections.abc import Callable

from exporter.assembly import Evidence
from exporter.doctor.checks import examine
from exporter.model import Snapshot
from exporter.report import Report
from exporter.settings import Settings


class Doctor:
    """Judges the last snapshot that ``record`` is told of; ``evidence`` returns what that is made of."""

    def __init__(self, evidence: Callable[[], Evidence], settings: Settings) -> None:
        self._evidence = evidence
        self._settings = settings
        self._last: tuple[Snapshot, Evidence] | None = None
        self._made: tuple[Snapshot, Report] | None = None
        self._making = threading.Lock()

    def record(self, snapshot: Snapshot) -> None:
        """Keep a snapshot together with its evidence, on the event loop: the next poll replaces both."""
        self._last = snapshot, self._evidence()

    def report(self) -> Report:
        """Give the report of the last poll, without any check before the first. For any thread."""
        with self._making:
            last = self._last
            if last is None:
                return Report(self._settings.node_name, ())
            if self._made is None or self._made[0] is not last[0]:
                self._made = last[0], examine(*last, self._settings)
            return self._made[1]
