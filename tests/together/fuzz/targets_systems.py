"""Every sharing system: what it makes of the ids, annotations, labels, limits and claims of a node."""

from functools import partial
from typing import Any

from exporter.sharing import SYSTEMS
from exporter.sharing.base import System
from exporter.sharing.kai import KaiLimited
from exporter.sharing.koordinator import KoordinatorHamiCore
from tests.together.fuzz.nodes import MARK, Told, node_of
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.target import Target

LONGEST_OBJECTION = 1024
# What stands in annotations and ids, of any system.
WORDS = (
    b"::",
    b"GPU-",
    b"MIG-",
    b"/gi",
    b"/vgpu",
    b":;",
    b",,0,0",
    b"[",
    b"]",
    b"-1",
    b"null",
    b"{}",
    b'""',
    b"1e9",
)


def _decode(system: type[System], content: bytes) -> Told:
    texts = content.decode(errors="replace").split(MARK)
    return node_of(system).filled(system, texts).holdings(system)


def _seeds(system: type[System]) -> list[bytes]:
    return [MARK.join(node_of(system).texts(system)).encode()]


def _check(told: Told) -> None:
    """Require that a bad text costs what it is about: a short objection, and no system as a whole."""
    holdings, problems = told
    for problem in problems:
        if problem.reason.endswith("_failure"):
            raise BrokenPromiseError(f"all of a system failed at one text: {problem.text}")
        if len(problem.about) + len(problem.text) > LONGEST_OBJECTION:
            raise BrokenPromiseError(
                f"an objection is {len(problem.text)} characters long: {problem.text:.80}"
            )
    for held in holdings.holdings:
        if held.slices < 1:
            raise BrokenPromiseError(f"a holding of {held.slices} slices")


# Texts of these systems are read in modules of their own, which no class of theirs is in.
READERS = {
    "nvidia": ("exporter.sharing.nvidia_strategy", "exporter.sharing.nvidia_plugin"),
    "dra": ("exporter.sharing.dra.cdi",),
}


def _modules(system: type[System]) -> tuple[str, ...]:
    """Name the modules in which a system's classes are written."""
    own = (
        each.__module__
        for each in system.__mro__
        if each.__module__.startswith("exporter.sharing.") and _has_methods(each)
    )
    return tuple(dict.fromkeys((*own, *READERS.get(system.name, ()))))


def _has_methods(kind: type[Any]) -> bool:
    return any(callable(getattr(each, "__func__", each)) for each in vars(kind).values())


# Two classes of some systems bear one name.
SECOND = {KoordinatorHamiCore: "koordinator-hami-core", KaiLimited: "kai-limited"}


def _name(system: type[System]) -> str:
    return f"system-{SECOND.get(system, system.name)}"


TARGETS = tuple(
    Target(
        name=_name(system),
        covers=_modules(system),
        seeds=partial(_seeds, system),
        decode=partial(_decode, system),
        check=_check,
        reached=lambda told: bool(told[0].holdings or told[0].unknown_drivers),
        words=WORDS,
        cost=2,
    )
    for system in SYSTEMS
)
