"""Systems whose annotations place the ids of a container: one example of each, for test_common.py.

Also what the tests of several systems share: the cache of a library, and any JSON.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from exporter.model import Allocation, ContainerFile, OfferedDevice, SliceCount, SystemFiles
from tests.core.sharing.build import OTHER_UUID
from tests.core.sharing.cards import has

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


def cached(*uses, uid="uid-a", name="main") -> dict[str, SystemFiles]:
    """Return the cache that HAMi's library keeps of a container."""
    file = ContainerFile(pod_uid=uid, container=name, devices=uses)
    return {"hami": SystemFiles(containers=(file,))}


@dataclass(frozen=True, kw_only=True, repr=False)
class Case:
    """A system with a container that has a part of a device: by default the second card of ``two_cards``."""

    name: str
    isolation: str
    reason: str  # of objections to its annotation
    annotate: Callable[[str], dict[str, str]]  # annotations of a pod by the text that can be wrong
    device: str = OTHER_UUID  # that of the container
    here: str  # text that places the ids there
    gone: str  # text that names a card of another node
    entitled: tuple[int | None, float | None]  # memory and compute of the part
    amounts: dict[str, int]  # ids by resource, which are unresolved if nothing places them
    ids: Callable[[str], list[Allocation]] | None = None  # of a pod, if not any
    by_kubelet: bool = True  # a holder has ids
    offered: tuple[OfferedDevice, ...] = ()
    slices: SliceCount | None = None  # of the device, with what is offered and this holder
    malformed: tuple[str, ...] = ()
    keeps_ids: bool = True  # a pod with a malformed text has unresolved ids
    unconfirmed: tuple[dict[str, str], ...] = ()  # annotations that are plans
    only_card: bool = False  # a node with one card needs no annotation
    blind: bool = True  # without the pods' objects the system is reported
    whole: tuple[dict[str, int], str] | None = None  # ids and text of two whole cards
    impossible: tuple[tuple[dict[str, int], str], ...] = ()  # ids that cannot be of the cards in the text

    def __repr__(self) -> str:
        return self.name

    def allocated(self, name: str) -> list[Allocation]:
        """Return the ids of a pod."""
        if not self.by_kubelet:
            return []
        return (self.ids or partial(has, amounts=self.amounts))(name)
