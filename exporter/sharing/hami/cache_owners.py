"""Whose files are whose, of those that HAMi's libraries keep of containers, and of which device.

HAMi's plugins make a folder for each container, and some name it after another container of the pod.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from exporter.model import ContainerFile, ContainerSpec, Meter, PodDetails
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

CACHE = "hami"
# How much of a name libvgpu keeps of a device.
NAME_LENGTH = 40


def names_by_pod(view: View, system: str) -> dict[str, set[str]]:
    """Return the names of containers under which a system has files, by the uid of the pod."""
    names: dict[str, set[str]] = defaultdict(set)
    files = view.facts.files.get(system)
    for file in files.containers if files is not None else ():
        names[file.pod_uid].add(file.container)
    return dict(names)


def filed(
    here: AbstractSet[str], places: Mapping[str, int], containers: Sequence[ContainerSpec]
) -> dict[str, str]:
    """Return under which name the file of each holder is; {} where it is its own, or nothing explains it.

    ``here`` are the names that the pod has files of, ``places`` says which segment of the annotation is each
    holder's, ``containers`` stand init first.

    Plugins take the place of a segment for that of a container: Volcano's without init containers, HAMi's
    since 2.9 and that of Ascend's NPUs with them. HAMi's up to 2.8 do not count segments that are empty, as
    those that it is done with are: they take the first container for every one.
    """
    if here <= places.keys():
        return {}
    main = [container.name for container in containers if not container.init]
    for order in (main, [container.name for container in containers]):
        file_names = {name: order[place] for name, place in places.items() if place < len(order)}
        if file_names.keys() == places.keys() and here <= set(file_names.values()):
            return file_names
    return dict.fromkeys(places, main[0]) if len(places) == 1 and here == set(main[:1]) else {}


def in_common(here: AbstractSet[str], details: PodDetails | None) -> bool:
    """Whether the files of several holders lie in one folder, as HAMi up to 2.8 puts them.

    It is that of the first container. Where it is not known which that is, any one folder may be.
    """
    main = (
        [container.name for container in details.containers if not container.init]
        if details is not None
        else []
    )
    return len(here) == 1 and (not main or main[0] in here)


def meter_of(file: ContainerFile | None, device: Device | None) -> Meter | None:
    """Return what libvgpu counted of a device, of whose name it keeps a part."""
    if file is None or device is None:
        return None
    name = (device.key.mig_uuid or device.key.uuid)[:NAME_LENGTH]
    use = next((use for use in file.devices if use.device[:NAME_LENGTH] == name), None)
    if use is None:
        return None
    return Meter(source=CACHE, memory=use.memory_used, compute=use.compute_used, memory_only=use.memory_only)
