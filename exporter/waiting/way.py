"""One way in which a waiting pod could get its slices, and what would not help, as records."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from exporter.waiting.objects import PodKey

Kind = Literal["ending", "idle", "recut", "larger", "replicas", "device", "smaller"]
KINDS: Final[tuple[Kind, ...]] = ("ending", "idle", "recut", "larger", "replicas", "device", "smaller")
"""Kinds of ways, nearest first: by what they cost others."""
Source = Literal["objects", "GPUs", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A change after which the pod fits a node, as far as that is judged; carried out in thought."""

    kind: Kind
    node: str
    what: str  # the fact, in words
    asked: str  # who can do it
    source: Source  # of what it goes by, for its age
    gpu: str = ""  # index on the node, "" if it is about none
    pods: tuple[PodKey, ...] = ()  # that would leave
    resource: str = ""  # the pod would ask for this resource or device class
    instead_of: str = ""  # and no longer for this
    # Of a re-cut: the driver's own commands, and what else they stop. Nothing is run here.
    commands: tuple[str, ...] = ()
    stops: str = ""
    unjudged: tuple[str, ...] = ()  # what is not judged of the pod there; () if it would surely help
    others: int = 0  # number of further ways of this kind


class NotHelping(NamedTuple):
    """What looks like a way, and is none."""

    node: str
    what: str


class Found(NamedTuple):
    """The ways of one kind, best first, and what would not help."""

    ways: list[Way]
    not_helping: list[NotHelping]
