"""A broken promise is found: decoders that are wrong on purpose, each in one way."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from exporter.model import DeviceUse, Memory
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.target import Target, examine


class Pair(NamedTuple):
    """A record of another kind."""

    name: str
    memory: int | None


@dataclass(frozen=True)
class Deep:
    """A record with records in it."""

    uses: Mapping[str, tuple[DeviceUse, ...]]


def _target(decode: Any, **changes: Any) -> Target:
    return Target(name="x", covers=(), seeds=lambda: [b"x"], decode=decode, **changes)


@pytest.mark.parametrize(
    "wrong",
    [
        DeviceUse(device="0", memory_limit=-1),
        DeviceUse(device="0", memory_limit=True),
        DeviceUse(device="0", memory_limit="8"),  # type: ignore[arg-type]
        DeviceUse(device="0", compute_limit=math.nan),
        DeviceUse(device="0", compute_used=math.inf),
        DeviceUse(device=None),  # type: ignore[arg-type]
        Memory(total=1 << 2000, used=0, free=0),
        Pair("a", -1),
        Pair(b"a", 1),  # type: ignore[arg-type]
        Deep({"a": (DeviceUse(device="0", memory_used=-5),)}),
        Deep({"a": [DeviceUse(device="0")]}),  # type: ignore[dict-item]
        [{"a": math.nan}],
    ],
    ids=repr,
)
def test_an_impossible_value_is_found(wrong) -> None:
    """A value of another type, below zero or infinite, at any depth."""
    with pytest.raises(BrokenPromiseError):
        examine(_target(lambda _: wrong), b"x")


def test_none_and_zero_are_possible() -> None:
    examine(_target(lambda _: [DeviceUse(device="0", memory_used=0), Pair("a", None), Deep({})]), b"x")


def test_a_result_that_changes_is_found() -> None:
    count = itertools.count()

    with pytest.raises(BrokenPromiseError, match="the same bytes"):
        examine(_target(lambda _: next(count)), b"x")


def test_only_documented_errors_may_be_raised() -> None:
    """A refusal has a message; any other error is raised."""

    def refuse(_: bytes) -> None:
        raise ValueError("is no number")

    def mute(_: bytes) -> None:
        raise ValueError

    examine(_target(refuse, refuses=(ValueError,)), b"x")
    with pytest.raises(ValueError, match="is no number"):
        examine(_target(refuse, refuses=(KeyError,)), b"x")
    with pytest.raises(BrokenPromiseError, match="0 characters"):
        examine(_target(mute, refuses=(ValueError,)), b"x")
