"""The ways in which a waiting pod could get its slices, nearest first: by what they cost others.

Each is carried out in thought for this pod alone, and listed if it then passes all filters that are judged
here. Nothing is run, and nothing is concluded from what is not known.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from exporter.waiting import ways_by_devices, ways_by_gpus, ways_by_pods, ways_by_requests
from exporter.waiting.lack import Search
from exporter.waiting.way import KINDS, Found, Kind, NotHelping, Way

MOST_WAYS: Final = 5
MOST_NOT_HELPING: Final = 3
_FIND: Final[Mapping[Kind, tuple[Callable[[Search], Found], ...]]] = {
    "ending": (ways_by_pods.ending,),
    "idle": (ways_by_pods.idle,),
    "recut": (ways_by_gpus.recut,),
    "larger": (ways_by_requests.larger, ways_by_devices.larger_device),
    "replicas": (ways_by_gpus.replicas,),
    "device": (ways_by_gpus.devices, ways_by_devices.tainted),
    "smaller": (ways_by_requests.smaller,),
}


def find_ways(search: Search) -> tuple[tuple[Way, ...], tuple[NotHelping, ...]]:
    """Return the best way of each kind, at most five, and the first of what would not help.

    There are none for a pod that some node may have room for, or that gates hold back: then something else
    keeps it waiting.
    """
    if (
        search.pod.gates
        or any(verdict.answer != "no" for verdict, _ in search.verdicts.groups)
        or search.verdicts.before
    ):
        return (), ()
    ways: list[Way] = []
    not_helping: list[NotHelping] = []
    for kind in KINDS:
        found = [find(search) for find in _FIND[kind]]
        # Those that are judged in full come first.
        possible = sorted((way for each in found for way in each.ways), key=lambda way: bool(way.unjudged))
        if possible:
            ways.append(replace(possible[0], others=len(possible) - 1))
        not_helping += [useless for each in found for useless in each.not_helping]
    helping = {way.node for way in ways}
    useless = [each for each in not_helping if each.node not in helping]
    return tuple(ways[:MOST_WAYS]), tuple(useless[:MOST_NOT_HELPING])
