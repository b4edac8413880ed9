"""Why readings of a GPU are missing: the last error of each group of readings."""

from collections import defaultdict

NOT_SUPPORTED = "not supported by this GPU or its driver"


class Reasons:
    """The last error of each group by GPU: of this sweep, and of readings that are not asked in every one."""

    def __init__(self) -> None:
        self._now: dict[str, dict[str, str]] = defaultdict(dict)
        self._kept: dict[str, dict[str, str]] = defaultdict(dict)

    def begin(self, gpu: str, *, slow: bool) -> None:
        """Drop the errors of the last sweep; with ``slow``, also those that are kept."""
        self._now.pop(gpu, None)
        if slow:
            self._kept.pop(gpu, None)

    def note(self, gpu: str, group: str, error: str) -> None:
        """Set the last error of a group."""
        self._now[gpu][group] = error

    def pop(self, gpu: str, group: str) -> str | None:
        """Remove and return the last error of a group in this sweep."""
        return self._now[gpu].pop(group, None)

    def keep(self, gpu: str, group: str) -> None:
        """Keep the last error of a group until ``begin`` with ``slow``."""
        if (error := self._now[gpu].get(group)) is not None:
            self._kept[gpu][group] = error

    def of(self, gpu: str) -> dict[str, str]:
        """Return the errors of a GPU by group."""
        return self._kept.get(gpu, {}) | self._now.get(gpu, {})
