"""Answers for the owner of a holder, in sentences: whether its slice is used, and whether memory is left."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.memory_limits import limits_text, zone
from exporter.metrics import Number
from exporter.model import ContainerRow, Memory
from exporter.model.states import Judgement
from exporter.wording import UNKNOWN, decimal, duration, gibibytes, hundredths, mode_word, total_text

# With less than this part of its limit left, the next allocation is likely to fail.
_LITTLE_LEFT = 0.05
# Use below this counts as none.
_NOTHING = 0.005
# Below this measured part of its time the answer mentions it.
_MEASURED = 0.99


class AnsweredQuestion(NamedTuple):
    """A question with its answers."""

    question: str
    sentences: tuple[tuple[str, str], ...]  # (device, "" for all of them; text)


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderFacts:
    """A holder on one of its devices; each ``why`` is shown if its number is unknown."""

    row: ContainerRow
    judged: Judgement
    at: float  # Unix time of these facts
    name: str  # of the device and what is held of it
    others: Sequence[ContainerRow]  # the other containers on the device
    memory: Memory | None  # of the device
    why_compute: str
    why_memory: str
    why_entitled: str


def use_answer(facts: Sequence[HolderFacts]) -> AnsweredQuestion:
    """Return whether a holder uses what it has, for all of its devices."""
    return AnsweredQuestion("Is its slice used?", _sentences(facts, _USE))


def memory_answer(facts: Sequence[HolderFacts]) -> AnsweredQuestion:
    """Return whether there is memory left for a holder, and who uses the rest of a shared device."""
    return AnsweredQuestion("Is there memory left for it?", _sentences(facts, _MEMORY))


def efficiency_of(row: ContainerRow) -> float | None:
    """Return the compute that a container used / was entitled to since it was first seen.

    Times at which its use or its entitlement was unknown do not count.
    """
    totals = row.totals
    if totals is None or totals.measured_use_gpu_seconds is None or not totals.measured_gpu_seconds:
        return None
    return totals.measured_use_gpu_seconds / totals.measured_gpu_seconds


# Returns what a container uses and what it is entitled to.
_UsedAndEntitled = Callable[[ContainerRow], tuple[Number | None, Number | None]]


class _Question(NamedTuple):
    answer: Callable[[HolderFacts], Iterator[str]]  # for one device
    together: Callable[[Sequence[ContainerRow]], str]  # for several devices
    stands_out: Callable[[HolderFacts], bool]  # whether one of several devices gets its own answer


def _sentences(facts: Sequence[HolderFacts], question: _Question) -> tuple[tuple[str, str], ...]:
    if len(facts) == 1:
        return (("", " ".join(question.answer(facts[0]))),)
    single = [(each.name, " ".join(question.answer(each))) for each in facts if question.stands_out(each)]
    return (("", question.together([each.row for each in facts])), *single)


def _use(facts: HolderFacts) -> Iterator[str]:
    row = facts.row
    if row.slices == 0:
        yield "It uses this device without holding a slice of it."
    yield _now(facts)
    efficiency = efficiency_of(row)
    if efficiency is not None and row.totals is not None:
        seen = duration(facts.at - row.totals.first_seen)
        share = f"{decimal(100 * efficiency, 0)} %"
        measured, entitled = row.totals.measured_gpu_seconds or 0.0, row.totals.entitled_gpu_seconds or 0.0
        while_measured = " while that was measured" if measured < _MEASURED * entitled else ""
        yield (
            f"Since it was first seen {seen} ago, it has used {share} of the GPU time it was entitled to"
            f"{while_measured}."
        )


def _now(facts: HolderFacts) -> str:
    row = facts.row
    used, entitled = row.compute_used, row.compute_entitled
    if used is None:
        count = f"{row.processes} {'process' if row.processes == 1 else 'processes'}"
        processes = f" It has {count} on it." if row.processes else ""
        return f"Not known: {facts.why_compute}.{processes}"
    if used < _NOTHING:
        return _quiet(facts)
    if entitled is None:
        return f"Yes: it uses {decimal(used, 2)} of a GPU now."
    if used > entitled + _NOTHING:
        return f"Yes: it uses {decimal(used, 2)} of a GPU now, beyond its share of {decimal(entitled, 2)}."
    return f"Yes: it uses {decimal(used, 2)} of the {decimal(entitled, 2)} GPU it is entitled to."


def _quiet(facts: HolderFacts) -> str:
    row, judged = facts.row, facts.judged
    activity, seconds = judged.activity, judged.not_computed_for
    keeps = f", and keeps {gibibytes(row.memory_used)} GiB of memory" if row.memory_used else ""
    if seconds is None or row.totals is None or row.compute_used:
        return f"Hardly: it computes almost nothing now{keeps}."
    if not row.totals.seen_computing:
        no = "No" if activity == "idle" else "Not yet"
        return f"{no}: it has not computed since monitoring began {duration(seconds)} ago{keeps}."
    if activity == "idle":
        return f"No: it has not computed for {duration(seconds)}{keeps}."
    return f"Not at this moment: it last computed {duration(seconds)} ago{keeps}."


def _memory(facts: HolderFacts) -> Iterator[str]:
    row = facts.row
    used, entitled = row.memory_used, row.memory_entitled
    if used is None:
        yield f"Its memory use is not known: {facts.why_memory}."
        if entitled is not None:
            yield f"It is entitled to {gibibytes(entitled)} GiB."
    elif entitled is None:
        yield f"It uses {gibibytes(used)} GiB and has no known entitlement: {facts.why_entitled}."
        yield from _device(facts)
    elif row.memory_guaranteed is not None:
        yield from _limited(row, used)
        yield from _device(facts)
    elif row.isolation == "hard":
        yield f"It uses {gibibytes(used)} of {gibibytes(entitled)} GiB, which no other container can take."
        yield from _left(used, entitled)
    elif row.isolation == "soft":
        system = mode_word(row.sharing)
        yield f"It uses {gibibytes(used)} of the {gibibytes(entitled)} GiB that {system} allows it."
        yield from _left(used, entitled)
        if used <= entitled:
            yield "Allocations above that fail, even if the device has free memory."
    else:
        yield f"It uses {gibibytes(used)} GiB; its share of {gibibytes(entitled)} GiB is not enforced."
        yield from _device(facts)


def _limited(row: ContainerRow, used: int) -> Iterator[str]:
    """Yield what is left below the limits of its cgroup."""
    soft, hard = row.memory_guaranteed or 0, row.memory_limit
    yield f"It uses {gibibytes(used)} GiB: {limits_text(row)}."
    charged = row.memory_charged
    if charged is None:
        return
    if charged < soft:
        yield f"{gibibytes(soft - charged)} GiB more are guaranteed to it."
    # A limit for several containers is not its entitlement: the others may have used it up.
    own = not row.memory_limit_above or row.memory_entitled == hard
    if own and hard is not None and charged < hard:
        yield f"It can allocate {gibibytes(hard - charged)} GiB more if the device has them."


def _left(used: int, entitled: int) -> Iterator[str]:
    if used > entitled:
        yield f"That is {gibibytes(used - entitled)} GiB over the limit: the limit is not enforced."
    elif entitled - used < _LITTLE_LEFT * entitled:
        yield f"Only {gibibytes(entitled - used)} GiB are left: the next allocation may fail."


def _device(facts: HolderFacts) -> Iterator[str]:
    """Yield who uses the shared memory, and how much of it is free."""
    others = facts.others
    if others:
        total = total_text((other.memory_used for other in others), gibibytes)
        one = len(others) == 1
        if total == UNKNOWN:
            yield f"The use of its {'neighbour' if one else f'{len(others)} neighbours'} is not known."
        else:
            noun = "neighbour uses" if one else f"{len(others)} neighbours use"
            yield f"Its {noun} {total} GiB{_largest(others)}."
    memory = facts.memory
    if memory is not None:
        free = f"{gibibytes(memory.free)} of the device's {gibibytes(memory.total)} GiB"
        yield f"{free} are free, first come, first served."


def _largest(others: Sequence[ContainerRow]) -> str:
    known = [other for other in others if other.memory_used]
    if len(others) == 1 or not known:
        return _beyond(others[0])
    largest = max(known, key=lambda other: other.memory_used or 0)
    return (
        f", the largest of them {largest.holder.namespace}/{largest.holder.pod} "
        f"with {gibibytes(largest.memory_used)} GiB{_beyond(largest)}"
    )


def _beyond(row: ContainerRow) -> str:
    if row.memory_used is None or row.memory_entitled is None or row.memory_used <= row.memory_entitled:
        return ""
    return f", beyond its share of {gibibytes(row.memory_entitled)}"


def _of_all(
    rows: Sequence[ContainerRow], amounts: _UsedAndEntitled, write: Callable[[Number], str], unit: str
) -> str:
    used = total_text((amounts(row)[0] for row in rows), write)
    # Without slices the entitlement is known to be nothing.
    entitled = total_text((amounts(row)[1] for row in rows if row.slices != 0), write)
    if used == UNKNOWN:
        return f"Its use of its {len(rows)} devices is not known."
    if entitled == UNKNOWN:
        return f"On {len(rows)} devices it uses {used} {unit}; its entitlement is not known."
    return f"On {len(rows)} devices it uses {used} of the {entitled} {unit} it is entitled to."


def _is_short(facts: HolderFacts) -> bool:
    """Return whether little memory is left, or that is unknown."""
    row = facts.row
    if zone(row) in ("borrowing", "full"):
        return True
    if row.memory_used is None or row.memory_entitled is None:
        return True
    return row.memory_used > (1 - _LITTLE_LEFT) * row.memory_entitled


_USE = _Question(
    _use,
    lambda rows: _of_all(rows, lambda row: (row.compute_used, row.compute_entitled), hundredths, "GPUs"),
    lambda facts: facts.judged.state != "active",
)
_MEMORY = _Question(
    _memory,
    lambda rows: _of_all(rows, lambda row: (row.memory_used, row.memory_entitled), gibibytes, "GiB"),
    _is_short,
)
