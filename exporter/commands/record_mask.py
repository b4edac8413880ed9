"""Names and numbers that identify nobody, the same one each time for the same original."""

import re
from collections import defaultdict

from exporter.sharing.device_id import parse_device_id

UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


class Mask:
    """Replaces names by numbered ones, in the order that they are met; ``on`` False leaves all as it is."""

    def __init__(self, on: bool = True) -> None:
        self._on = on
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)

    def name(self, kind: str, original: str) -> str:
        """Return ``<kind>-<n>``; unmasked, the last part of the original."""
        if not self._on:
            return original.rpartition("/")[2]
        return f"{kind}-{self._number(kind, original)}"

    def uid(self, original: str) -> str:
        """Return another pod uid, "" for none; also for a static pod's, which is 32 digits in a row."""
        return self._uuid(original) if original and self._on else original

    def uuid(self, original: str) -> str:
        """Replace the digits of a UUID, keeping a prefix such as ``GPU-`` and whatever follows them."""
        if not self._on:
            return original
        return UUID.sub(self._other_uuid, original)

    def device_id(self, original: str) -> str:
        """Mask the UUID within a device id; the replica, instance or minor in it stays.

        An id that names a device in a way unknown to us may say anything, and is replaced as a whole.
        """
        if parse_device_id(original) is not None or UUID.search(original):
            return self.uuid(original)
        return self.name("device", original)

    def serial(self, original: str | None) -> str | None:
        """Return a serial number of the same length, None for none."""
        if original is None or not self._on:
            return original
        return str(self._number("serial", original)).zfill(len(original))

    def _other_uuid(self, found: re.Match[str]) -> str:
        return self._uuid(found[0])

    def _uuid(self, original: str) -> str:
        return f"00000000-0000-4000-8000-{self._number('uuid', original.lower()):012x}"

    def _number(self, kind: str, original: str) -> int:
        numbers = self._numbers[kind]
        return numbers.setdefault(original, len(numbers) + 1)
