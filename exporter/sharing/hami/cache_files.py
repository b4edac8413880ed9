"""The caches of HAMi's library libvgpu: where they are, and the container and device of each.

HAMi's device plugin makes a folder for each container, HAMi's DRA driver one for each claim. Some plugins
name a folder after another container of the pod.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from exporter.model import ContainerFile, ContainerSpec, Meter, Problem, SystemFiles
from exporter.sharing.base import Roots
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import MOST_CONTAINERS, listed, of_containers, opened, problem, reported
from exporter.sharing.base.view import View, main_containers
from exporter.sharing.hami.cache import decode

# The system of HAMi's device plugin reads the caches, also for the other systems.
CACHE = "hami"
# libvgpu truncates device names to this length.
NAME_LENGTH = 40
# A folder has the cache, the library and its lock; the container can add files.
MOST_FILES = 64


def read_hami(roots: Roots) -> SystemFiles:
    """Return the caches of all containers and claims. Volcano's folder is one level deeper than HAMi's."""
    problems: list[Problem] = []
    files: list[ContainerFile] = []
    for root in (roots.hami / "containers", roots.hami / "vgpu/containers"):
        for folder, pod, container in of_containers(root, problems):
            files += _in_folder(folder, problems, pod_uid=pod, container=container)
    claims = roots.hami / "claims"
    for name in listed(claims, MOST_CONTAINERS, problems):
        files += _in_folder(f"{claims}/{name}", problems, claim_uid=name)
    return SystemFiles(containers=tuple(files), problems=tuple(problems))


def _in_folder(folder: str, problems: list[Problem], **owner: str) -> Iterator[ContainerFile]:
    """Yield the cache of a folder; a folder without a cache yet gives a file without devices."""
    of_folder: list[Problem] = []
    caches = [name for name in listed(folder, MOST_FILES, of_folder) if name.endswith(".cache")]
    problems += of_folder
    if len(caches) > 1:
        problems.append(problem(folder, f"has {len(caches)} caches instead of one"))
    elif caches:
        path = f"{folder}/{caches[0]}"
        with reported(path, problems), opened(path) as (size, pread):
            content = decode(pread, size)
            problems += (problem(path, text) for text in content.problems)
            yield ContainerFile(devices=content.devices, pids=content.pids, **owner)
    elif not of_folder:
        yield ContainerFile(devices=(), pids=None, **owner)


def names_by_pod(view: View, system: str) -> dict[str, set[str]]:
    """Return the container names of a system's files by pod uid."""
    names: dict[str, set[str]] = defaultdict(set)
    for file in view.files(system).containers:
        names[file.pod_uid].add(file.container)
    return dict(names)


def filed(
    here: AbstractSet[str], segments: Mapping[str, int], containers: Sequence[ContainerSpec]
) -> dict[str, str]:
    """Return the container name of each holder's file; {} if it is its own, or unknown.

    ``here`` are the names of the pod's files, ``segments`` has the number of each holder's segment in the
    annotation, ``containers`` have init containers first.

    Plugins take the position of a segment for that of a container: Volcano's without init containers, HAMi's
    since 2.9 and that of Ascend NPUs with them. HAMi's up to 2.8 do not count empty segments, and empty a
    segment when it is done, so that they take the first container for every segment.
    """
    if here <= segments.keys():
        return {}
    main = main_containers(containers)
    for order in (main, [container.name for container in containers]):
        file_names = {name: order[number] for name, number in segments.items() if number < len(order)}
        if file_names.keys() == segments.keys() and here <= set(file_names.values()):
            return file_names
    return dict.fromkeys(segments, main[0]) if len(segments) == 1 and here == set(main[:1]) else {}


def in_common(here: AbstractSet[str], main: Sequence[str]) -> bool:
    """Return True if several holders share one folder, as with HAMi up to 2.8.

    It has the name of the first of the ``main`` containers; if these are unknown, any single folder may be
    shared.
    """
    return len(here) == 1 and (not main or main[0] in here)


def meter_of(file: ContainerFile | None, device: Device | None) -> Meter | None:
    """Return libvgpu's figures for a device, None if its cache does not have the device."""
    if file is None or device is None:
        return None
    name = (device.key.mig_uuid or device.key.uuid)[:NAME_LENGTH]
    use = next((use for use in file.devices if use.device[:NAME_LENGTH] == name), None)
    if use is None:
        return None
    return Meter(source=CACHE, memory=use.memory_used, compute=use.compute_used, memory_only=use.memory_only)
