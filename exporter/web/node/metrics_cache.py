"""The metrics page of the newest snapshot: each form is rendered once, in a thread, off the loop."""

from collections.abc import Callable

from exporter.concurrency import in_scrape_thread
from exporter.exposition import Exposition, Format, Page
from exporter.model import Snapshot
from exporter.web.kit.render_queue import SharedTask, TaskCache

# A format of the metrics page, and whether it is compressed.
_Form = tuple[Format, bool]


class MetricsCache:
    """The metrics page of the snapshot that ``current`` returns."""

    def __init__(self, current: Callable[[], Snapshot], exposition: Exposition) -> None:
        self._current = current
        self._exposition = exposition
        self._page = exposition.page(current())
        self._tasks = TaskCache()
        # Forms requested of the current and the previous snapshot.
        self._requested: set[_Form] = set()
        self._requested_earlier: set[_Form] = set()

    def turn(self, _snapshot: Snapshot) -> None:
        """Take the newest snapshot; to be called for each one.

        A form that was requested of both previous snapshots is rendered at once, so that a Prometheus that
        scrapes every snapshot need not wait for it.
        """
        steady = self._requested & self._requested_earlier
        self._requested_earlier, self._requested = self._requested, set()
        page = self._fresh_page()
        for form in steady:
            self._start(form, page)

    async def body(self, fmt: Format, zipped: bool) -> bytes:
        """Return the metrics page in one format."""
        page, form = self._fresh_page(), (fmt, zipped)
        self._requested.add(form)
        if page.ready(fmt, zipped=zipped):
            return page.gzipped(fmt) if zipped else page.body(fmt)
        return await self._start(form, page).wait()

    def _fresh_page(self) -> Page:
        current = self._current()
        if self._page.snapshot is not current:
            self._page = self._exposition.page(current)
        self._tasks.renew(current)
        return self._page

    def _start(self, form: _Form, page: Page) -> SharedTask[bytes]:
        fmt, zipped = form
        make = page.gzipped if zipped else page.body
        return self._tasks.start(form, lambda: in_scrape_thread(make, fmt))
