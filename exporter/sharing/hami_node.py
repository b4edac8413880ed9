"""What HAMi's device plugins write of a node's devices into the annotations of its node."""

import json
import re
from typing import Any, NamedTuple

from exporter.model import NodeObject

LONGEST = 256 * 1024
MOST_DEVICES = 1024
MOST = 1 << 20
NUMBER = re.compile(r"[0-9]{1,6}")


class Registered(NamedTuple):
    """A device as its plugin registered it; ``cores`` is None where it does not tell how many it has.

    ``address`` is its PCI address, "" where the plugin does not tell it, ``slices`` into how many it is
    given out. Memory is not read: it may be scaled.
    """

    number: int | None
    cores: int | None
    address: str = ""
    slices: int | None = None


def registered(node: NodeObject | None, key: re.Pattern[str]) -> dict[str, Registered]:
    """Return the devices of the annotations that ``key`` matches, by id; what cannot be read has none.

    A list is JSON, or in the form of older plugins: ``id,count,MiB,cores,type,node,health`` and more, each
    ended by a colon.
    """
    found: dict[str, Registered] = {}
    for name, text in sorted(node.annotations.items()) if node is not None else ():
        if key.fullmatch(name):
            found |= _of_json(text) if text.startswith("[") else _of_text(text)
    return found


def _of_json(text: str) -> dict[str, Registered]:
    try:
        listed = json.loads(text) if len(text) <= LONGEST else None
    except (ValueError, RecursionError):
        return {}
    items = listed[:MOST_DEVICES] if isinstance(listed, list) else []
    return {item["id"]: _device(item) for item in items if _is_device(item)}


def _of_text(text: str) -> dict[str, Registered]:
    """Read the older form; a device that does not tell its index is the one of its place."""
    records = [record.split(",") for record in text[:LONGEST].split(":")[:MOST_DEVICES]]
    return {
        record[0]: Registered(
            number=_number(record[7:8], place),
            cores=_number(record[3:4], 0) or None,
            slices=_number(record[1:2], 0) or None,
        )
        for place, record in enumerate(records)
        if len(record) in {7, 8, 9}
    }


def _number(texts: list[str], other: int) -> int:
    return int(texts[0]) if texts and NUMBER.fullmatch(texts[0]) else other


def _is_device(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("id"), str)


def _device(item: dict[str, Any]) -> Registered:
    """Go leaves out an index of 0."""
    index, more = item.get("index", 0), item.get("custominfo")
    address = more.get("pciBDF") if isinstance(more, dict) else None
    return Registered(
        number=index if type(index) is int and 0 <= index <= MOST else None,
        cores=_positive(item.get("devcore")),
        address=address if isinstance(address, str) else "",
        slices=_positive(item.get("count")),
    )


def _positive(value: Any) -> int | None:
    return value if type(value) is int and 0 < value <= MOST else None
