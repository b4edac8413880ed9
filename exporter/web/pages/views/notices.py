"""What the page says in sentences: what fails, what is lost with it, and what to do."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from urllib.parse import quote

from exporter.formats.wording import duration, mode_word, plural
from exporter.model import GpuRow
from exporter.web.pages.picture.mig_cells import part_name
from exporter.web.pages.views.event_list import recent_faults
from exporter.web.pages.views.scene import Scene, answers


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know. ``look`` is ``bad`` or ``note``.

    ``href`` leads to where more is told of it, "" where there is nothing more.
    """

    look: str
    title: str
    text: str
    href: str = ""
    link: str = "What to do"


@dataclass(frozen=True, slots=True)
class Panel:
    """What stands in place of something that there is nothing of: why, and what to do.

    ``doctor`` is the way to its page, "" where it has nothing to say about this.
    """

    title: str
    text: str
    doctor: str = ""
    demo: bool = False


def notices(scene: Scene) -> list[Notice]:
    """Say what is wrong, the worst first."""
    said = chain(
        _driver(scene),
        _lost(scene),
        _needs(scene),
        _faults(scene),
        _kubelet(scene),
        _unhealthy(scene),
        _unresolved(scene),
        _blind(scene),
        _use(scene),
    )
    told = [replace(notice, text=_sentence(notice.text)) for notice in said]
    return sorted(told, key=lambda notice: notice.look != "bad")


def _sentence(text: str) -> str:
    """Let a message of the log stand as a sentence."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _doctor(scene: Scene) -> str:
    return f"{scene.root}doctor"


def _driver(scene: Scene) -> Iterator[Notice]:
    # Without a GPU on the page the panel in their place says it.
    if "nvml" not in scene.failing or not scene.snapshot.gpus:
        return
    if scene.released:
        text = (
            "Nothing is read from its GPUs, so that they can be reset or cut anew; who holds them is still "
            "told. It is taken again as soon as nobody asks for it any more"
        )
        yield Notice("note", f"The driver is given up, because {scene.released}", text)
        return
    seen = any(answers(gpu) for gpu in scene.snapshot.gpus if gpu.identity.vendor == "nvidia")
    title = f"The driver does not answer{'; the GPUs are shown as they were last seen' if seen else ''}"
    yield Notice("bad", title, scene.failing["nvml"], _doctor(scene))


def _lost(scene: Scene) -> Iterator[Notice]:
    for gpu in scene.snapshot.gpus:
        if not answers(gpu) and not gpu.unread and "nvml" not in scene.failing:
            rows = [row for row in scene.snapshot.containers if row.device.uuid == gpu.identity.uuid]
            pods = dict.fromkeys(f"{row.holder.namespace}/{row.holder.pod}" for row in rows)
            held = f"It is held by {', '.join(pods)}." if pods else "No pod is known to hold it."
            yield Notice(
                "bad", f"GPU {gpu.identity.index} does not answer", held, _page(scene, gpu), "Its page"
            )


def _page(scene: Scene, gpu: GpuRow) -> str:
    return f"{scene.root}gpu/{quote(gpu.identity.uuid, safe='')}"


def _needs(scene: Scene) -> Iterator[Notice]:
    """Say what GPUs that answer need before they can be relied on."""
    for gpu in scene.snapshot.gpus:
        reading = gpu.reading
        if reading is None or not reading.up:
            continue
        name = f"GPU {gpu.identity.index}"
        if reading.recovery_action not in (None, "none"):
            action = reading.recovery_action.replace("_", " ")
            title = f"{name} asks for a recovery: {action}"
            yield Notice("bad", title, "Drain it first", _page(scene, gpu), "Why")
        if reading.repairs is not None and reading.repairs.row_remap_failure:
            text = "A faulty row of its memory could not be replaced. The board is to be exchanged."
            yield Notice("bad", f"{name} has no spare memory left", text, _page(scene, gpu), "Its page")
        elif reading.repairs is not None and reading.repairs.row_remap_pending:
            text = "A faulty row of its memory is replaced when it is reset."
            yield Notice("note", f"{name} waits for a reset", text, _page(scene, gpu), "Its page")


def _faults(scene: Scene) -> Iterator[Notice]:
    for fault in recent_faults(scene):
        page = f"{_page(scene, fault.gpu)}#events"
        yield Notice(fault.look, f"{fault.name}, {fault.ago} ago", fault.text, page, "All events")


def _kubelet(scene: Scene) -> Iterator[Notice]:
    read_at, unlisted = scene.snapshot.node.allocations_read_at, scene.snapshot.node.unlisted_pods
    if unlisted and read_at is not None:
        title = f"The kubelet was started and does not list {plural(unlisted, 'running pod')} yet"
        text = f"Allocations of these pods are from {duration(scene.now - read_at)} ago"
        yield Notice("note", title, text, _doctor(scene))
    if "podresources" not in scene.failing:
        return
    if read_at is None:
        title = "Who holds what is not known, because the kubelet does not answer"
    else:
        title = f"The kubelet does not answer; holders are those of {duration(scene.now - read_at)} ago"
    yield Notice("bad", title, scene.failing["podresources"], _doctor(scene))


def _unhealthy(scene: Scene) -> Iterator[Notice]:
    for gpu in scene.snapshot.gpus:
        for count in gpu.slices:
            if count.unhealthy:
                slices = f"{plural(count.unhealthy, 'unhealthy slice')} of {count.resource}"
                title = f"{slices} on GPU {gpu.identity.index}"
                text = (
                    "The device plugin reports this, mostly after an XID: no new pod is given such a slice. "
                    "What holders are entitled to stays the same"
                )
                yield Notice("note", title, text, _page(scene, gpu), "Its page")


def _unresolved(scene: Scene) -> Iterator[Notice]:
    for resource, count in sorted(scene.snapshot.node.unresolved.items()):
        title = f"{plural(count, 'allocated device')} of {resource} cannot be found"
        text = (
            "A pod has been given what leads to no GPU that the driver lists: the GPU may be lost or was cut "
            "anew, or the sharing system has not said which GPU it chose."
        )
        yield Notice("bad", title, text, _doctor(scene))


def _blind(scene: Scene) -> Iterator[Notice]:
    for system, lost in sorted(scene.snapshot.node.blind.items()):
        text = f"It cannot be told {lost}. See docs/deploy.md: the objects of pods"
        title = f"{mode_word(system)} shares GPUs here, and the annotations of pods are not known"
        yield Notice("bad", title, text, _doctor(scene))


def _use(scene: Scene) -> Iterator[Notice]:
    node = scene.snapshot.node
    others = {"nvml", "podresources"}
    if not node.process_view and scene.snapshot.sequence and scene.snapshot.gpus:
        others.add("processes")
        reason = node.process_view_reason or "the processes of the host cannot be seen; set hostPID: true"
        title = "What each container uses is not known where a device is shared"
        yield Notice("bad", title, reason, _doctor(scene))
    titles = {
        "processes": "Processes cannot be placed in pods",
        "identity": "Processes cannot be given to pods by name",
    }
    for name, message in scene.failing.items():
        if name not in others:
            title = titles.get(name, f"The source {name} fails")
            yield Notice("bad", title, message, _doctor(scene))
    parts = [mig for mig in scene.snapshot.migs if part_name(mig.device) == "MIG device"]
    silent = [mig for mig in parts if mig.compute_used is None and answers(scene.gpus.get(mig.device.uuid))]
    if silent:
        some = len(silent) < len(parts)
        title = f"Compute on {'some ' if some else ''}MIG devices is not measured"
        where = "some MIG devices of this node" if some else "MIG on this node"
        text = f"Nothing meters compute inside {where}; it is hatched here. Memory is measured."
        yield Notice("note", title, text)


def missing_gpus(scene: Scene) -> Panel | None:
    """Explain why there is no GPU on the page, None where there is one."""
    snapshot = scene.snapshot
    if snapshot.gpus:
        return None
    if not snapshot.sequence:
        text = (
            "Opening the driver can take half a minute on a node whose GPUs were idle. Load this page again."
        )
        return Panel("The first poll is under way", text)
    if scene.released:
        text = f"{_sentence(scene.failing['nvml'])} Its GPUs are here again when it is."
        return Panel("No GPU is looked at", text)
    if "nvml" in scene.failing:
        title = "No GPU can be seen: the driver does not answer"
        return Panel(title, _sentence(scene.failing["nvml"]), _doctor(scene), demo=True)
    if snapshot.node.gpu_count is None:
        text = "The last readings were too old to show. Look at the log of this exporter."
        return Panel("Nothing fresh is known of the GPUs", text, _doctor(scene))
    text = (
        "The driver runs and lists none. On a GPU node, look at whether this container is given the GPUs: "
        "NVIDIA_VISIBLE_DEVICES=all, and the runtime class of NVIDIA where the cluster has one."
    )
    return Panel("This node has no GPU", text, _doctor(scene), demo=True)


def missing_holders(scene: Scene) -> Panel | None:
    """Explain why the table is empty, None where it is not or where there is no GPU to hold."""
    snapshot = scene.snapshot
    if snapshot.containers or not snapshot.gpus:
        return None
    if all(gpu.holders is None for gpu in snapshot.gpus):
        return Panel("Who holds the GPUs is not known", _sentence(scene.why_holders()), _doctor(scene))
    if any(gpu.slices for gpu in snapshot.gpus):
        text = "All slices are free. A pod that is given one is here with the next poll."
        return Panel("No pod holds or uses a GPU", text)
    text = (
        "The kubelet offers none of these GPUs to pods. That is as it should be where pods claim them (DRA); "
        "elsewhere look at whether the device plugin runs here."
    )
    return Panel("No pod holds a GPU", text, _doctor(scene))
