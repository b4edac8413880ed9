"""Notices of the page: what fails, what is lost with it, and what to do."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple
from urllib.parse import quote

from exporter.model import GpuRow
from exporter.model.condition_signs import REBOOTS, RESETS
from exporter.model.conditions import TABLE
from exporter.web.kit.elements import Notice
from exporter.web.node.pages.event_list import recent_faults
from exporter.web.node.pages.scene import Scene, answers, is_mig
from exporter.wording import contested, duration, mode_word, plural, recovery


class Panel(NamedTuple):
    """A message in place of missing content: why, and what to do."""

    title: str
    text: str
    doctor: str = ""  # address of the doctor page, "" if it does not cover this
    demo: bool = False  # whether to mention the demo


def notices(scene: Scene) -> list[Notice]:
    """Return the notices, the worst first."""
    all_notices = chain(
        _driver(scene),
        _conditions(scene),
        _faults(scene),
        _kubelet(scene),
        _unhealthy(scene),
        _cordoned(scene),
        _unresolved(scene),
        _contested(scene),
        _blind(scene),
        _use(scene),
    )
    sentences = [notice._replace(text=_sentence(notice.text)) for notice in all_notices]
    return sorted(sentences, key=lambda notice: notice.look != "bad")


def _sentence(text: str) -> str:
    """Return a log message as a sentence."""
    return f"{capitalized(text).removesuffix('.')}."


def capitalized(text: str) -> str:
    """Return a text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _doctor(scene: Scene) -> str:
    return f"{scene.root}doctor"


def _driver(scene: Scene) -> Iterator[Notice]:
    # Without GPUs on the page, the panel in their place reports it.
    if "nvml" not in scene.failing or not scene.snapshot.gpus:
        return
    if scene.released:
        text = (
            "NVML is shut down so the GPUs can be reset or repartitioned; allocations are still shown. It "
            "starts again when the request ends"
        )
        yield Notice("note", f"The driver is released because {scene.released}", text)
        return
    seen = any(answers(gpu) for gpu in scene.snapshot.gpus if gpu.identity.vendor == "nvidia")
    title = f"The driver does not answer{'; the GPUs are shown as last read' if seen else ''}"
    yield Notice("bad", title, scene.failing["nvml"], _doctor(scene))


def _page(scene: Scene, gpu: GpuRow) -> str:
    return f"{scene.root}gpu/{quote(gpu.identity.uuid, safe='')}"


def _conditions(scene: Scene) -> Iterator[Notice]:
    for gpu in scene.snapshot.gpus:
        for notice in condition_notices(scene, gpu):
            yield notice._replace(href=_page(scene, gpu), link="Its page")


def condition_notices(scene: Scene, gpu: GpuRow) -> Iterator[Notice]:
    """Yield what is wrong with a GPU; the notices about its driver say what all GPUs have in common."""
    name = f"GPU {gpu.identity.index}"
    for condition, raised in gpu.raised.items():
        row = TABLE[condition]
        if condition == "driver_released" or (condition == "lost" and "nvml" in scene.failing):
            continue
        since = f"For {duration(max(scene.now - raised.since, 0))}"
        why = f"{'; '.join(raised.causes)}."
        if condition == "lost":
            rows = scene.rows_of(gpu.identity.uuid)
            pods = dict.fromkeys(f"{row.holder.namespace}/{row.holder.pod}" for row in rows)
            why = f"Held by {', '.join(pods)}." if pods else "No known holder."
        yield Notice(row.severity, f"{name} {row.title}", f"{since}. {capitalized(why)} {row.remedy}")
    action = gpu.reading.recovery_action if gpu.reading is not None else None
    if action is not None and action not in {"none", *RESETS, *REBOOTS}:
        # A first step: no condition, because what must follow is not known yet.
        yield Notice("bad", f"{name} {recovery(action)}", "The driver reports the next step after it.")
    yield from _reported(scene, gpu)


def _reported(scene: Scene, gpu: GpuRow) -> Iterator[Notice]:
    """Yield what the kubelet reports in the status of pods, next to what the driver does."""
    for health, pods in scene.unhealthy_pods(gpu.identity.uuid).items():
        bad = [name for name in gpu.raised if TABLE[name].severity == "bad"]
        known = gpu.reading is not None and gpu.reading.up
        driver = "" if bad or not known else " The driver reports no problem."
        title = f"Kubernetes reports GPU {gpu.identity.index} as {health}"
        text = f"In the status of {', '.join(pods)}, by the device plugin or DRA driver.{driver}"
        yield Notice("bad", title, f"{text} New pods may not get it.")


def _faults(scene: Scene) -> Iterator[Notice]:
    for fault in recent_faults(scene):
        page = f"{_page(scene, fault.gpu)}#events"
        yield Notice(fault.look, f"{fault.name}, {fault.ago} ago", fault.text, page, "All events")


def _kubelet(scene: Scene) -> Iterator[Notice]:
    read_at, unlisted = scene.snapshot.node.allocations_read_at, scene.snapshot.node.unlisted_pods
    if unlisted and read_at is not None:
        title = f"The kubelet restarted and does not list {plural(unlisted, 'running pod')} yet"
        text = f"Allocations of these pods are from {duration(scene.now - read_at)} ago"
        yield Notice("note", title, text, _doctor(scene))
    if "podresources" not in scene.failing:
        return
    if read_at is None:
        title = "The kubelet does not answer; holders are not known"
    else:
        title = f"The kubelet does not answer; holders are from {duration(scene.now - read_at)} ago"
    yield Notice("bad", title, scene.failing["podresources"], _doctor(scene))


def _unhealthy(scene: Scene) -> Iterator[Notice]:
    for gpu in scene.snapshot.gpus:
        for count in gpu.slices:
            if count.unhealthy:
                slices = f"{plural(count.unhealthy, 'unhealthy slice')} of {count.resource}"
                title = f"{slices} on GPU {gpu.identity.index}"
                text = (
                    "The device plugin reports this, usually after an XID. New pods do not get these "
                    "slices; entitlements of holders stay the same"
                )
                yield Notice("note", title, text, _page(scene, gpu), "Its page")


def _cordoned(scene: Scene) -> Iterator[Notice]:
    for gpu in scene.snapshot.gpus:
        if any(count.cordoned for count in gpu.slices):
            title = f"GPU {gpu.identity.index} is cordoned"
            text = "The scheduler gives its slices to no new pod; holders keep theirs"
            yield Notice("note", title, text, _page(scene, gpu), "Its page")


def _unresolved(scene: Scene) -> Iterator[Notice]:
    for resource, count in sorted(scene.snapshot.node.unresolved.items()):
        if resource in scene.snapshot.node.unknown_drivers:
            title = f"Resource claims of {resource} may be for GPUs"
            text = (
                "This DRA driver is not known here. Holders, allocated slices and entitlements of the GPUs "
                "that its claims may be for are unknown."
            )
            yield Notice("note", title, text, _doctor(scene))
            continue
        title = f"{plural(count, 'allocated device')} of {resource} not found"
        text = (
            "A pod holds a device that matches no GPU of the driver: the GPU is lost or was repartitioned, "
            "or the sharing system has not reported which GPU it chose."
        )
        yield Notice("bad", title, text, _doctor(scene))


def _contested(scene: Scene) -> Iterator[Notice]:
    for device, holders in contested(scene.snapshot):
        text = (
            f"Held by {holders}. One of them should have it alone: their entitlements are not known, and "
            "nothing isolates them. Delete all but one of these pods"
        )
        yield Notice("bad", f"{device} is held by several containers at once", text, _doctor(scene))


def _blind(scene: Scene) -> Iterator[Notice]:
    for system, lost in sorted(scene.snapshot.node.blind.items()):
        text = (
            f"Cannot determine {lost}: pod annotations are not readable. See docs/deploy.md: the objects of "
            "pods"
        )
        title = f"{mode_word(system)} shares GPUs here through pod annotations"
        yield Notice("bad", title, text, _doctor(scene))


_CHARGED = "Memory is that charged to cgroups. "


def _use(scene: Scene) -> Iterator[Notice]:
    node = scene.snapshot.node
    others = {"nvml", "podresources"}
    if not node.process_view and scene.snapshot.sequence and scene.snapshot.gpus:
        others.add("processes")
        reason = node.process_view_reason or "host processes are not visible; set hostPID: true"
        charged = any(row.memory_source == "cgroup" for row in scene.snapshot.containers)
        title = f"Per-container {'compute' if charged else 'usage'} on shared devices is not known"
        yield Notice("bad", title, f"{_CHARGED}{capitalized(reason)}" if charged else reason, _doctor(scene))
    titles = {
        "processes": "Processes cannot be matched to pods",
        "identity": "Processes cannot be matched to pod names",
    }
    for name, message in scene.failing.items():
        if name not in others:
            title = titles.get(name, f"Source {name} fails")
            yield Notice("bad", title, message, _doctor(scene))
    parts = [mig for mig in scene.snapshot.migs if is_mig(mig.device)]
    silent = [mig for mig in parts if mig.compute_used is None and answers(scene.gpus.get(mig.device.uuid))]
    if silent:
        some = len(silent) < len(parts)
        title = f"Compute on {'some ' if some else ''}MIG devices is not measured"
        where = "some MIG devices of this node" if some else "MIG on this node"
        text = f"Compute inside {where} has no meter; it is hatched here. Memory is measured."
        yield Notice("note", title, text)


def missing_gpus(scene: Scene) -> Panel | None:
    """Return why there is no GPU on the page, None if there is one."""
    snapshot = scene.snapshot
    if snapshot.gpus:
        return None
    if not snapshot.sequence:
        text = "Starting the driver can take half a minute if the GPUs were idle. Reload this page."
        return Panel("The first poll is running", text)
    if scene.released:
        text = f"{_sentence(scene.failing['nvml'])} The GPUs are shown again when the request ends."
        return Panel("No GPU is read", text)
    if "nvml" in scene.failing:
        title = "No GPU is visible: the driver does not answer"
        return Panel(title, _sentence(scene.failing["nvml"]), _doctor(scene), demo=True)
    if snapshot.node.gpu_count is None:
        text = "The last readings are too old to show. Check the log of this exporter."
        return Panel("No current GPU readings", text, _doctor(scene))
    text = (
        "The driver runs and lists no GPU. On a GPU node, check that this container gets the GPUs: "
        "NVIDIA_VISIBLE_DEVICES=all, and the NVIDIA runtime class if the cluster has one."
    )
    return Panel("This node has no GPU", text, _doctor(scene), demo=True)


def missing_holders(scene: Scene) -> Panel | None:
    """Return why the table is empty, None if it is not or if there is no GPU."""
    snapshot = scene.snapshot
    if snapshot.containers or not snapshot.gpus:
        return None
    if all(gpu.holders is None for gpu in snapshot.gpus):
        return Panel("The holders of the GPUs are not known", _sentence(scene.why_holders()), _doctor(scene))
    if any(gpu.slices for gpu in snapshot.gpus):
        text = "All slices are free. A pod that gets one appears at the next poll."
        return Panel("No pod holds or uses a GPU", text)
    text = (
        "The kubelet offers none of these GPUs to pods. This is normal if pods claim them (DRA); otherwise "
        "check that the device plugin runs on this node."
    )
    return Panel("No pod holds a GPU", text, _doctor(scene))
