"""One pod of the cluster as text, with the answers that the page of a holder has."""

import time
from collections.abc import Iterator

from exporter.advice.model import Advice
from exporter.fleet.gpus import Holder
from exporter.fleet.pod_model import DAYS, PodBefore, PodDevice, PodFound
from exporter.fleet.targets import some_names
from exporter.fleet.text import age_words
from exporter.formats.advice import advice_paragraphs
from exporter.formats.holder_answers import (
    AnsweredQuestion,
    HolderFacts,
    efficiency_of,
    memory_answer,
    use_answer,
)
from exporter.formats.holder_text import HolderReport, Part, energy, gpu_time, report_text
from exporter.formats.text import holder_name, slices_held, state_words
from exporter.model.conditions import TABLE
from exporter.model.kubelet import is_unhealthy
from exporter.model.xids import explain
from exporter.wording import UNKNOWN, decimal, duration, gibibytes, mode_word, plural

_LATEST = 253402300799.0  # Unix time of the end of the year 9999


def pod_text(found: PodFound, width: int | None = None) -> str:
    """Return what is known of a pod as text."""
    return report_text(
        HolderReport(
            title=_title(found),
            facts=list(_facts(found)),
            answers=answers_of(found),
            parts=[*map(_device, found.devices), *_before(found), *_problems(found)],
        ),
        width,
    )


def answers_of(found: PodFound) -> list[AnsweredQuestion]:
    """Return the answers that the page of a holder has, as far as Prometheus has them."""
    if not found.devices:
        return []
    facts = [_facts_of(found, device) for device in found.devices]
    return [
        use_answer(facts),
        memory_answer(facts),
        AnsweredQuestion("Has a fault hit it?", (("", " ".join(_faults(found))),)),
        AnsweredQuestion("Which slice would fit it?", tuple(_fits(found))),
    ]


def _facts_of(found: PodFound, device: PodDevice) -> HolderFacts:
    why = f"this Prometheus does not have it; {device.url} may say why"
    return HolderFacts(
        row=device.row,
        judged=device.holder.judged,
        at=found.at,
        name=_name(device),
        others=[other.row for other in device.others],
        memory=device.memory,
        why_compute=why,
        why_memory=why,
        why_entitled="it holds nothing here" if device.row.slices == 0 else why,
    )


def _name(device: PodDevice) -> str:
    container = device.row.holder.container or "any container"
    return f"{container} on {_gpu(device)}: {device.profile or slices_held(device.row)}"


def _gpu(device: PodDevice) -> str:
    return f"GPU {device.gpu.index or device.gpu.uuid}"


def _title(found: PodFound) -> str:
    name = f"{found.namespace}/{found.pod}"
    if found.state == "holds":
        nodes = dict.fromkeys(str(device.node.key) for device in found.devices)
        count = len({device.row.device for device in found.devices})
        verb = "uses" if all(device.row.slices == 0 for device in found.devices) else "holds"
        return f"{name} {verb} {plural(count, 'device')} on {', '.join(nodes)}"
    if found.state == "held":
        return f"{name} holds no GPU now"
    if found.state == "unknown":
        return f"{name}: it is not known whether it holds a GPU"
    return f"{name}: no such pod holds a GPU, or held one in the last {DAYS} days"


def _facts(found: PodFound) -> Iterator[str]:
    uids = dict.fromkeys(device.pod_uid for device in found.devices if device.pod_uid)
    if uids:
        yield f"pod uid {', '.join(uids)}"
    if found.devices:
        ages = {device.node.key: f"{age_words(device.node)} old" for device in found.devices}
        yield f"data {', '.join(ages.values())}"
    for device in found.before:
        yield _until(found, device)
    if found.state == "none":
        yield "By its records this Prometheus scrapes the nodes and has other holders; check the name."
    if not (found.devices or found.before) and found.silent:
        names = some_names([str(node.key) for node in found.silent])
        yield f"It is not on the nodes that answer. Not answering: {names}."


def _until(found: PodFound, device: PodBefore) -> str:
    what = f"{device.resource or 'a slice'} of {device.model or 'GPU'} {device.gpu or device.uuid}"
    when = f"at some time in the last {DAYS} days"
    if device.until is not None:
        when = f"until {date_of(device.until)}, {duration(found.at - device.until)} ago"
    container = device.holder.container or "a container"
    sentence = f"{container} held {what} on node {device.node}: {when}."
    if device.why_unknown:
        sentence += f" Whether it still does is not known: {device.why_unknown}."
    return sentence


def date_of(moment: float) -> str:
    """Return a Unix time as a date, to the minute; a dash for one that is no date."""
    if not 0 <= moment <= _LATEST:
        return UNKNOWN
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def _faults(found: PodFound) -> Iterator[str]:
    troubles = list(_troubles(found))
    yield from troubles
    hits = {(device.gpu.uuid, xid) for device in found.devices for xid in device.xids or ()}
    if hits:
        newest = max((xid for _, xid in hits), key=lambda xid: xid.at)
        others = f" It is the newest of {len(hits)} kinds." if len(hits) > 1 else ""
        ago = duration(found.at - newest.at)
        yield f"XID {newest.code}, {ago} ago, while it was there. {explain(newest.code).meaning}{others}"
    elif any(device.xids is None for device in found.devices):
        yield f"Errors of its device are not known here: open {found.devices[0].url}"
    else:
        none = "the driver has reported no error since it got its device."
        yield f"T{none[1:]}" if troubles else f"No: {none}"


def _troubles(found: PodFound) -> Iterator[str]:
    """Yield what is wrong with its GPUs now."""
    first = {device.gpu.uuid: device for device in reversed(found.devices)}
    for device in reversed(first.values()):
        if device.gpu.up is False:
            yield f"{_gpu(device)} does not answer."
        for name in device.gpu.conditions or ():
            if name != "lost":
                yield f"{_gpu(device)} {TABLE[name].title}."
    for device in found.devices:
        if is_unhealthy(device.row.health):
            yield f"Kubernetes reports its slice of {_gpu(device)} as {device.row.health}."


def _fits(found: PodFound) -> Iterator[tuple[str, str]]:
    for advice in found.advices:
        name = _advice_name(advice) if len(found.advices) > 1 else ""
        for place, paragraph in enumerate(advice_paragraphs(advice)):
            yield ("" if place else name), paragraph
    if not found.advices:
        yield "", f"Not known here, without records for advice of a full hour: open {found.devices[0].url}"


def _advice_name(advice: Advice) -> str:
    window = advice.window
    return window.container or f"holders of {window.uses[0].device.mig_uuid or window.uses[0].device.uuid}"


def _device(device: PodDevice) -> Part:
    container = device.row.holder.container or "any container"
    heading = f"{container}: {_gpu(device)} · {slices_held(device.row)} · node {device.node.key}"
    return Part(heading, list(_lines(device)))


def _lines(device: PodDevice) -> Iterator[str]:
    row = device.row
    sharing = mode_word(row.sharing or device.gpu.sharing)
    uuid, isolation = row.device.mig_uuid or row.device.uuid, f"isolation {row.isolation or UNKNOWN}"
    yield " · ".join(filter(None, (row.model or device.gpu.model, sharing, device.profile, isolation, uuid)))
    for claim in row.claims:
        yield f"claim {claim.namespace}/{claim.name}"
    yield f"state: {state_words(device.holder.judged)}"
    yield f"memory: {_memory(device.holder)} · compute: {_compute(device.holder)}"
    yield " · ".join(f"{name} {text}" for name, text in _totals(device))
    for other in device.others:
        use = ", ".join((_memory(other), _compute(other), state_words(other.judged)))
        yield f"also on this device: {holder_name(other.row)}, {use}"
    if not device.gpu.all_holders:
        yield "other holders of this GPU are not known"
    elif not device.others:
        yield "no other known container on this device"
    free = "" if device.memory is not None else " and the free memory of the device"
    yield f"not known here, such as its processes{free}: open {device.url}"


def _memory(holder: Holder) -> str:
    return f"{gibibytes(holder.row.memory_used)} / {gibibytes(holder.row.memory_entitled)} GiB"


def _compute(holder: Holder) -> str:
    return f"{decimal(holder.row.compute_used, 2)} / {decimal(holder.row.compute_entitled, 2)} GPU"


def _totals(device: PodDevice) -> Iterator[tuple[str, str]]:
    totals, share = device.row.totals, efficiency_of(device.row)
    if totals is None:
        return
    held, used, joules = totals.entitled_gpu_seconds, totals.used_gpu_seconds, totals.energy_joules
    yield "GPU time held", UNKNOWN if held is None else gpu_time(held)
    yield "used", UNKNOWN if used is None else gpu_time(used)
    yield "efficiency", UNKNOWN if share is None else f"{decimal(100 * share, 0)} %"
    yield "memory peak", f"{gibibytes(totals.memory_peak)} GiB"
    yield "energy", UNKNOWN if joules is None else energy(joules)


def _before(found: PodFound) -> Iterator[Part]:
    urls = list(dict.fromkeys(device.url for device in found.before if device.url))
    if urls:
        yield Part("Its last hours may still be at", urls)


def _problems(found: PodFound) -> Iterator[Part]:
    if found.problems:
        yield Part("Not known", [f"{name}: {error}" for name, error in found.problems])
