"""The time that usage is read of: full hours of UTC, in pieces that are days or parts of days."""

import re
import time
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from exporter.config.parse import SettingsError

HOUR, DAY = 3600.0, 86400.0
# An hour is recorded by two groups of rules, the second from the records of the first, each every 15 minutes.
_RECORDED_AFTER = 1800.0
_LONGEST = 400
_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
_SINCE = re.compile(r"([0-9]{1,5})([hd])")


class Period(NamedTuple):
    """Full hours of UTC, by Unix time."""

    start: float
    end: float
    name: str
    """Such as October 2026."""

    @property
    def hours(self) -> float:
        """The number of hours."""
        return (self.end - self.start) / HOUR

    def days(self) -> Iterator[tuple[float, float]]:
        """Yield start and end of each day, or of the part of a day that is in the period."""
        start = self.start
        while start < self.end:
            end = min((start // DAY + 1) * DAY, self.end)
            yield start, end
            start = end


def last_recorded_hour(at: float) -> float:
    """Return the end of the last hour of which Prometheus has records at Unix time ``at``."""
    return (at - _RECORDED_AFTER) // HOUR * HOUR


def parse_month(text: str) -> tuple[int, int]:
    """Return year and month; raises ValueError."""
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12 or not 1970 < int(match[1]) < 9999:
        raise ValueError("a month such as 2026-10")
    return int(match[1]), int(match[2])


def parse_since(text: str) -> float:
    """Return the seconds of a number of hours or days; raises ValueError."""
    match = _SINCE.fullmatch(text)
    seconds = int(match[1]) * (DAY if match[2] == "d" else HOUR) if match else 0.0
    if not HOUR <= seconds <= _LONGEST * DAY:
        raise ValueError(f"hours or days such as 24h or 30d, up to {_LONGEST}d")
    return seconds


def period_since(seconds: float, at: float) -> Period:
    """Return the last ``seconds`` up to the last recorded hour at Unix time ``at``.

    Days are full days of UTC, and the part of the current one: most of them have a record.
    """
    end = last_recorded_hour(at)
    start = end - seconds // HOUR * HOUR
    if seconds % DAY == 0:
        start = start // DAY * DAY
    return Period(start, end, f"{_moment(start)} to {_moment(end)}")


def period_of_month(month: tuple[int, int], at: float) -> Period:
    """Return a month, the current one up to the last recorded hour; raises SettingsError."""
    start = datetime(*month, 1, tzinfo=UTC)
    whole = start.timestamp() + monthrange(*month)[1] * DAY
    end = min(whole, last_recorded_hour(at))
    name = f"{start:%B %Y}"
    if end <= start.timestamp():
        raise SettingsError(f"--month: {name} has no full hour yet")
    return Period(start.timestamp(), end, name if end == whole else f"{name} up to {_moment(end)}")


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
