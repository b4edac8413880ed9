"""The container and device of each file of HAMi's libraries.

HAMi's plugins make a folder for each container; some name it after another container of the pod.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from exporter.model import ContainerFile, ContainerSpec, Meter, PodDetails
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View, main_containers

CACHE = "hami"
# libvgpu truncates device names to this length.
NAME_LENGTH = 40


def names_by_pod(view: View, system: str) -> dict[str, set[str]]:
    """Return the container names of a system's files by pod uid."""
    names: dict[str, set[str]] = defaultdict(set)
    files = view.facts.files.get(system)
    for file in files.containers if files is not None else ():
        names[file.pod_uid].add(file.container)
    return dict(names)


def filed(
    here: AbstractSet[str], places: Mapping[str, int], containers: Sequence[ContainerSpec]
) -> dict[str, str]:
    """Return the container name of each holder's file; {} if it is its own, or unknown.

    ``here`` are the names of the pod's files, ``places`` the segment of each holder in the annotation,
    ``containers`` have init containers first.

    Plugins take the position of a segment for that of a container: Volcano's without init containers, HAMi's
    since 2.9 and that of Ascend NPUs with them. HAMi's up to 2.8 do not count empty segments, and empty a
    segment when it is done, so that they take the first container for every segment.
    """
    if here <= places.keys():
        return {}
    main = main_containers(containers)
    for order in (main, [container.name for container in containers]):
        file_names = {name: order[place] for name, place in places.items() if place < len(order)}
        if file_names.keys() == places.keys() and here <= set(file_names.values()):
            return file_names
    return dict.fromkeys(places, main[0]) if len(places) == 1 and here == set(main[:1]) else {}


def in_common(here: AbstractSet[str], details: PodDetails | None) -> bool:
    """Return True if several holders share one folder, as with HAMi up to 2.8.

    It has the name of the first container; if that is unknown, any single folder may be shared.
    """
    main = main_containers(details.containers) if details is not None else []
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
