"""The size of the head of a request, which is its request line and its headers."""

from exporter.web.kit.http.refusals import MAX_HEAD, TOO_LARGE, TOO_LONG, Refusal

_END = b"\r\n\r\n"


class HeadMeter:
    """Counts the bytes of one head while they arrive."""

    __slots__ = ("_last", "_line", "size")

    def __init__(self) -> None:
        self.size = 0  # bytes so far
        self._line = 0  # bytes of the request line, 0 until it is complete
        self._last = b""  # where a blank line may have begun

    def add(self, data: bytes) -> None:
        """Count data, up to the end of the head if it is in them."""
        if not self._line and (end := data.find(b"\n")) >= 0:
            self._line = self.size + end + 1
        known = len(self._last)
        joined = self._last + data
        end = joined.find(_END)
        self.size += len(data) if end < 0 else end + len(_END) - known
        self._last = joined[1 - len(_END) :]

    def restart(self, data: bytes = b"") -> None:
        """Count a new head, which begins behind the last blank line in the data."""
        self.size, self._line, self._last = 0, 0, b""
        self.add(data.rpartition(_END)[2])

    @property
    def refusal(self) -> Refusal | None:
        """The answer if the head is too large; it names the URL if that is the larger part."""
        if self.size <= MAX_HEAD:
            return None
        return TOO_LONG if (self._line or self.size) > MAX_HEAD // 2 else TOO_LARGE
