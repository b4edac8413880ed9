"""The sentences on the page of a holder, and what each of them claims."""

import re
from collections.abc import Callable
from typing import NamedTuple

from tests.page.web.truth import GIB, UNKNOWN, is_duration, is_number


def giga(value) -> float | None:
    """Return bytes in GiB."""
    return None if value is None else value / GIB


def is_gib(text, value) -> bool:
    """Whether a text is a number of bytes, in GiB."""
    return is_number(text, giga(value), 1)


def is_gpu(text, value) -> bool:
    """Whether a text is a share of a GPU."""
    return is_number(text, value, 2)


class Holder:
    """A container on a device: its use, its entitlement and its neighbours."""

    def __init__(self, series, key) -> None:
        self.series, self.key = series, key
        self.memory = series.of(key, "memory_used_bytes")
        self.limit = series.of(key, "memory_entitled_bytes")
        self.compute = series.of(key, "compute_used_ratio")
        self.share = series.of(key, "compute_entitled_ratio")
        self.quiet = series.quiet_for(key)
        self.soft = series.of(key, "memory_guaranteed_bytes")
        self.hard = series.of(key, "memory_limit_bytes")
        self.charged = series.of(key, "memory_charged_bytes")

    @property
    def holds_nothing(self) -> bool:
        """Whether it is on the device without a slice of it."""
        return self.series.of(self.key, "slices") == 0

    @property
    def others(self) -> list["Holder"]:
        """The other containers on the device."""
        beside = self.series.on(self.key.uuid, self.key.mig_uuid)
        return [Holder(self.series, key) for key in beside if key != self.key]

    @property
    def largest(self) -> float:
        """The memory of the largest of them."""
        return max(other.memory or 0 for other in self.others)

    def device(self, field) -> float | None:
        """Return a number of the device."""
        return self.series.device(self.key.uuid, self.key.mig_uuid, field)


class Sentence(NamedTuple):
    """A sentence with numbers in it; ``true`` checks its numbers for a container."""

    pattern: str
    true: Callable[..., bool]


def is_beside(of, count, used) -> bool:
    """Whether a sentence counts the neighbours and adds up their memory."""
    sizes = [other.memory for other in of.others]
    known = [size / GIB for size in sizes if size is not None]
    number = int(count.split()[0]) if count[0].isdigit() else 1
    least = "≥ " if len(known) < len(sizes) else ""
    return number == len(sizes) and is_number(used, sum(known) if known else None, 1, least=least)


N, D = r"(≥ \d+\.\d+|[<\d.\N{EN DASH}]+)", r"(\d+ (?:s|min|h \d+ min|d \d+ h))"
SENTENCES = (
    Sentence(
        rf"uses {N} of the {N} GPU it is entitled to\.",
        lambda of, used, share: (
            is_gpu(used, of.compute) and is_gpu(share, of.share) and of.compute <= of.share + 0.005
        ),
    ),
    Sentence(
        rf"uses {N} of a GPU now, beyond its share of {N}\.",
        lambda of, used, share: (
            is_gpu(used, of.compute) and is_gpu(share, of.share) and of.compute > of.share
        ),
    ),
    Sentence(rf"uses {N} of a GPU now\.", lambda of, used: is_gpu(used, of.compute) and of.share is None),
    Sentence(
        rf"it has not computed since monitoring began {D} ago", lambda of, quiet: is_duration(quiet, of.quiet)
    ),
    Sentence(rf"it has not computed for {D}", lambda of, quiet: is_duration(quiet, of.quiet)),
    Sentence(rf"it last computed {D} ago", lambda of, quiet: is_duration(quiet, of.quiet)),
    Sentence(rf"and keeps {N} GiB of memory\.", lambda of, kept: is_gib(kept, of.memory)),
    Sentence(
        rf"Since it was first seen {D} ago, it has used {N} % of the GPU time it was entitled to"
        r"(?: while that was measured)?\.",
        # Scenarios are half a minute old.
        lambda of, seen, part: (
            is_duration(seen, min(float(seen.split()[0]), 30))
            and is_number(part, 100 * of.series.efficiency(of.key), 0)
        ),
    ),
    Sentence(
        r"It has (\d+) process(?:es)? on it\.",
        lambda of, count: is_number(count, of.series.of(of.key, "processes"), 0),
    ),
    Sentence(
        rf"It uses {N} of {N} GiB, which no other container can take\.",
        lambda of, used, limit: is_gib(used, of.memory) and is_gib(limit, of.limit),
    ),
    Sentence(
        rf"It uses {N} of the {N} GiB that [^.]+ allows it\.",
        lambda of, used, limit: is_gib(used, of.memory) and is_gib(limit, of.limit),
    ),
    Sentence(
        rf"It uses {N} GiB; its share of {N} GiB is not enforced\.",
        lambda of, used, limit: is_gib(used, of.memory) and is_gib(limit, of.limit),
    ),
    Sentence(
        rf"It uses {N} GiB: soft limit {N} GiB, hard limit {N} GiB, by the \w+ \((?:dmem|misc)\)",
        lambda of, used, soft, hard: (
            is_gib(used, of.memory) and is_gib(soft, of.soft) and is_gib(hard, of.hard)
        ),
    ),
    Sentence(
        rf"It uses {N} GiB: soft limit {N} GiB, no hard limit, by the kernel \(dmem\)",
        lambda of, used, soft: is_gib(used, of.memory) and is_gib(soft, of.soft) and of.hard is None,
    ),
    Sentence(
        rf"; {N} GiB charged, within its soft limit\.",
        lambda of, charged: is_gib(charged, of.charged) and of.charged <= of.soft,
    ),
    Sentence(
        rf"; {N} GiB charged, borrowing: it may be evicted under memory pressure\.",
        lambda of, charged: is_gib(charged, of.charged) and of.charged > of.soft,
    ),
    Sentence(
        rf"; {N} GiB charged, full: allocations fail\.",
        lambda of, charged: is_gib(charged, of.charged) and of.charged >= of.hard,
    ),
    Sentence(rf"{N} GiB more are guaranteed to it\.", lambda of, more: is_gib(more, of.soft - of.charged)),
    Sentence(
        rf"It can allocate {N} GiB more if the device has them\.",
        lambda of, more: is_gib(more, of.hard - of.charged),
    ),
    Sentence(
        rf"It uses {N} GiB and has no known entitlement",
        lambda of, used: is_gib(used, of.memory) and of.limit is None,
    ),
    Sentence(
        rf"It is entitled to {N} GiB\.", lambda of, limit: is_gib(limit, of.limit) and of.memory is None
    ),
    Sentence(rf"That is {N} GiB over the limit:", lambda of, more: is_gib(more, of.memory - of.limit)),
    Sentence(rf"Only {N} GiB are left:", lambda of, left: is_gib(left, of.limit - of.memory)),
    Sentence(
        rf"Its (\d+ neighbours use|neighbour uses) {N} GiB",
        is_beside,
    ),
    Sentence(
        r"The use of its (\d+ neighbours|neighbour) is not known\.",
        lambda of, count: is_beside(of, count, UNKNOWN),
    ),
    Sentence(
        rf", the largest of them (\S+) with {N} GiB",
        lambda of, who, size: (
            is_gib(size, of.largest)
            and who in {"/".join(other.key[:2]) for other in of.others if other.memory == of.largest}
        ),
    ),
    Sentence(
        rf"(?<=GiB), beyond its share of {N}\.",
        lambda of, limit: any(
            is_gib(limit, other.limit) and (other.memory or 0) > (other.limit or 0) for other in of.others
        ),
    ),
    Sentence(
        rf"{N} of the device's {N} GiB are free",
        lambda of, free, whole: (
            is_gib(free, of.device("memory_free_bytes")) and is_gib(whole, of.device("memory_total_bytes"))
        ),
    ),
)


def false_sentences(text, of):
    """Yield the sentences of a text that are not true of any of some containers."""
    for pattern, true in SENTENCES:
        for found in re.finditer(pattern, text):
            if not any(_holds(true, each, found.groups()) for each in of):
                yield found[0]


def _holds(true, holder, numbers) -> bool:
    try:
        return true(holder, *numbers)
    except TypeError:
        # Something that the sentence is about is not known.
        return False


def unknown_sentences(text) -> str:
    """Return what is left of a text without the sentences that are known, if there is a number in it."""
    # What continues a sentence stands after it.
    for pattern, _ in reversed(SENTENCES):
        text = re.sub(pattern, "", text)
    # The reason why something is unknown may have any words.
    text = re.sub(r"(?:Not|not) known: .*", "", text)
    return text if re.search(r"(?<![\w/.-])\d", text) else ""


def is_together(of, text) -> bool:
    """Whether the sentence about several devices has their sums, or says which of them is not known."""
    sums = {
        "GPUs": ([each.compute for each in of], [each.share for each in of if not each.holds_nothing], 2),
        "GiB": (
            [giga(each.memory) for each in of],
            [giga(each.limit) for each in of if not each.holds_nothing],
            1,
        ),
    }
    if text == f"Its use of its {len(of)} devices is not known.":
        return any(set(uses) == {None} for uses, *_ in sums.values())
    found = re.fullmatch(
        rf"On {len(of)} devices it uses {N}(?: of the {N})? (GPUs|GiB)"
        r"(?: it is entitled to|; its entitlement( is not known))\.",
        text,
    )
    uses, shares, digits = sums[found[3]]
    said = UNKNOWN if found[4] else found[2]
    return _is_sum(found[1], uses, digits) and _is_sum(said, shares, digits)


def _is_sum(text, values, digits) -> bool:
    known = [value for value in values if value is not None]
    return is_number(
        text, sum(known) if known else None, digits, least="≥ " if len(known) < len(values) else ""
    )
