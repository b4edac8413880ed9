"""Answers for the owner of a holder, in sentences: is it used, is there memory left, was it hit."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from exporter.formats.advice import advice_paragraphs
from exporter.metrics import Number
from exporter.model import ContainerRow
from exporter.model.conditions import TABLE
from exporter.model.kubelet import is_unhealthy
from exporter.web.node.pages.event_list import EventView
from exporter.web.node.pages.holder_cells import efficiency_of
from exporter.web.node.pages.scene import Scene, answers, name_of
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


def answers_of(
    scene: Scene, rows: Sequence[ContainerRow], names: Sequence[str], hits: Sequence[EventView]
) -> list[AnsweredQuestion]:
    """Return the answers for all rows, each with its name if there are several."""
    return [
        AnsweredQuestion("Is its slice used?", _sentences(scene, rows, names, _USE)),
        AnsweredQuestion("Is there memory left for it?", _sentences(scene, rows, names, _MEMORY)),
        AnsweredQuestion("Has a fault hit it?", (("", " ".join(_faults(scene, rows, hits))),)),
        AnsweredQuestion("Which slice would fit it?", tuple(_fits(scene, rows))),
    ]


# Returns what a container uses and what it is entitled to.
_UsedAndEntitled = Callable[[ContainerRow], tuple[Number | None, Number | None]]


class _Question(NamedTuple):
    answer: Callable[[Scene, ContainerRow], Iterator[str]]  # for one row
    together: Callable[[Sequence[ContainerRow]], str]  # for several rows
    stands_out: Callable[[Scene, ContainerRow], bool]  # whether one of several rows gets its own answer


def _sentences(
    scene: Scene, rows: Sequence[ContainerRow], names: Sequence[str], question: _Question
) -> tuple[tuple[str, str], ...]:
    if len(rows) == 1:
        return (("", " ".join(question.answer(scene, rows[0]))),)
    single = [
        (name, " ".join(question.answer(scene, row)))
        for row, name in zip(rows, names, strict=True)
        if question.stands_out(scene, row)
    ]
    return (("", question.together(rows)), *single)


def _use(scene: Scene, row: ContainerRow) -> Iterator[str]:
    if row.slices == 0:
        yield "It uses this device without holding a slice of it."
    yield _now(scene, row)
    efficiency = efficiency_of(row)
    if efficiency is not None and row.totals is not None:
        seen = duration(scene.snapshot.timestamp - row.totals.first_seen)
        share = f"{decimal(100 * efficiency, 0)} %"
        measured, entitled = row.totals.measured_gpu_seconds or 0.0, row.totals.entitled_gpu_seconds or 0.0
        while_measured = " while that was measured" if measured < _MEASURED * entitled else ""
        yield (
            f"Since it was first seen {seen} ago, it has used {share} of the GPU time it was entitled to"
            f"{while_measured}."
        )


def _now(scene: Scene, row: ContainerRow) -> str:
    used, entitled = row.compute_used, row.compute_entitled
    if used is None:
        count = f"{row.processes} {'process' if row.processes == 1 else 'processes'}"
        processes = f" It has {count} on it." if row.processes else ""
        return f"Not known: {scene.why_compute(row)}.{processes}"
    if used < _NOTHING:
        return _quiet(scene, row)
    if entitled is None:
        return f"Yes: it uses {decimal(used, 2)} of a GPU now."
    if used > entitled + _NOTHING:
        return f"Yes: it uses {decimal(used, 2)} of a GPU now, beyond its share of {decimal(entitled, 2)}."
    return f"Yes: it uses {decimal(used, 2)} of the {decimal(entitled, 2)} GPU it is entitled to."


def _quiet(scene: Scene, row: ContainerRow) -> str:
    judged = scene.judged(row)
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


def _memory(scene: Scene, row: ContainerRow) -> Iterator[str]:
    used, entitled = row.memory_used, row.memory_entitled
    if used is None:
        yield f"Its memory use is not known: {scene.why_memory(row)}."
        if entitled is not None:
            yield f"It is entitled to {gibibytes(entitled)} GiB."
    elif entitled is None:
        yield f"It uses {gibibytes(used)} GiB and has no known entitlement: {scene.why_entitled(row)}."
        yield from _device(scene, row)
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
        yield from _device(scene, row)


def _left(used: int, entitled: int) -> Iterator[str]:
    if used > entitled:
        yield f"That is {gibibytes(used - entitled)} GiB over the limit: the limit is not enforced."
    elif entitled - used < _LITTLE_LEFT * entitled:
        yield f"Only {gibibytes(entitled - used)} GiB are left: the next allocation may fail."


def _device(scene: Scene, row: ContainerRow) -> Iterator[str]:
    """Yield who uses the shared memory, and how much of it is free."""
    others = [other for other in scene.rows(row.device) if other is not row]
    if others:
        total = total_text((other.memory_used for other in others), gibibytes)
        one = len(others) == 1
        if total == UNKNOWN:
            yield f"The use of its {'neighbour' if one else f'{len(others)} neighbours'} is not known."
        else:
            noun = "neighbour uses" if one else f"{len(others)} neighbours use"
            yield f"Its {noun} {total} GiB{_largest(others)}."
    memory = scene.device_memory(row)
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


def _is_short(_scene: Scene, row: ContainerRow) -> bool:
    """Return whether a row has little memory left, or that is unknown."""
    if row.memory_used is None or row.memory_entitled is None:
        return True
    return row.memory_used > (1 - _LITTLE_LEFT) * row.memory_entitled


_USE = _Question(
    _use,
    lambda rows: _of_all(rows, lambda row: (row.compute_used, row.compute_entitled), hundredths, "GPUs"),
    lambda scene, row: scene.state(row) != "active",
)
_MEMORY = _Question(
    _memory,
    lambda rows: _of_all(rows, lambda row: (row.memory_used, row.memory_entitled), gibibytes, "GiB"),
    _is_short,
)


def _fits(scene: Scene, rows: Sequence[ContainerRow]) -> Iterator[tuple[str, str]]:
    advices = scene.advise(scene.snapshot, rows[0].holder)
    for advice in advices:
        model = advice.window.device.model if len(advices) > 1 else ""
        for place, paragraph in enumerate(advice_paragraphs(advice)):
            yield ("" if place else model), paragraph
    if not advices:
        yield "", _why_no_advice(rows)


def _why_no_advice(rows: Sequence[ContainerRow]) -> str:
    if any(row.slices for row in rows):
        return "Not known: seen for less than 5 minutes."
    if any(row.slices is None for row in rows):
        return "Not known: its allocation is not known."
    return "None: it holds no slice."


def _faults(scene: Scene, rows: Sequence[ContainerRow], hits: Sequence[EventView]) -> Iterator[str]:
    gpus = [scene.gpus.get(uuid) for uuid in dict.fromkeys(row.device.uuid for row in rows)]
    for gpu in gpus:
        if gpu is not None and not gpu.unread and not answers(gpu):
            yield f"{name_of(gpu)} does not answer."
        if gpu is not None and answers(gpu):
            for condition, raised in gpu.raised.items():
                yield f"{name_of(gpu)} {TABLE[condition].title}: {'; '.join(raised.causes)}."
    if hits:
        newest = hits[0]
        others = f" It is the newest of {len(hits)}." if len(hits) > 1 else ""
        yield f"{newest.name}, {newest.ago} ago, while it was on the device. {newest.meaning}{others}"
    elif any(gpu is not None and gpu.unread for gpu in gpus):
        yield "This exporter does not read the events of its device."
    elif all(gpu is not None and gpu.watched for gpu in gpus):
        yield "No: the driver has reported none since this exporter first saw it."
    else:
        yield "Events of its device are not reported here; check the node's kernel log."
    for row in rows:
        gpu = scene.gpus.get(row.device.uuid)
        if gpu is not None and is_unhealthy(row.health):
            yield f"Kubernetes reports its slice of {name_of(gpu)} as {row.health}."
