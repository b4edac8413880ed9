"""Every decoder keeps its promises on any input: hypothesis on all targets, and past findings.

The inputs are always the same ones. ``make fuzz`` looks for new ones, guided by the code that is reached.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.together.fuzz.door import Door
from tests.together.fuzz.edits import exchanged, inputs_of
from tests.together.fuzz.every import TARGETS
from tests.together.fuzz.target import Target, examine

CORPUS = Path(__file__).parent / "corpus"
BY_NAME = {target.name: target for target in TARGETS}
FEW_EXAMPLES, EXAMPLES = 6, 40
# Parts of all inputs of a target: of those that are decoded to something, and of those that are not seeds too
# and differ. In the mean of all targets they are 0.93 and 0.84.
LEAST_OPENED, LEAST_FRESH = 0.65, 0.35
# Their only text is the id of a device, of which there are few.
FEW_VALID = frozenset(f"system-{name}" for name in ("amd", "intel", "nos", "nvidia", "nvshare", "vgpu"))
MOST_EXCHANGED, LEAST_EXCHANGED = 560, 80
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@dataclass
class Tried:
    """The inputs that were tried: their number, how many were decoded, and the new ones of those."""

    inputs: int = 0
    opened: int = 0
    fresh: set[bytes] = field(default_factory=set)


def _tried(target: Target, examples: int) -> Tried:
    """Hold a target to its promises on inputs of hypothesis."""
    door, tried = Door(target), Tried()

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs_of(target, door))
    def keeps(content: bytes) -> None:
        examine(target, content)
        tried.inputs += 1
        if door.opens(content):
            tried.opened += 1
            tried.fresh.add(content)

    keeps()
    tried.fresh -= set(target.seeds())
    return tried


@each_target
def test_a_decoder_keeps_its_promises_on_seeds_and_few_other_inputs(target: Target) -> None:
    """Some seed is accepted: a decoder that refuses all would not be fuzzed behind its first check."""
    accepted = 0
    for seed in target.seeds():
        examine(target, seed)
        with contextlib.suppress(target.refuses):
            target.decode(seed)
            accepted += 1
    assert accepted
    examine(target, b"")
    assert _tried(target, FEW_EXAMPLES).inputs


@pytest.mark.slow
@each_target
def test_a_decoder_keeps_its_promises_on_any_input(target: Target) -> None:
    """Most inputs get behind the first check of the decoder, and differ."""
    tried = _tried(target, EXAMPLES)
    fresh = 0.0 if target.name in FEW_VALID else LEAST_FRESH
    assert tried.opened >= LEAST_OPENED * tried.inputs
    assert len(tried.fresh) >= fresh * tried.inputs


@pytest.mark.slow
@each_target
def test_any_part_of_a_valid_input_may_be_anything(target: Target) -> None:
    """A word in the place of a number, a name or a mark is refused, or decoded to what can be."""
    contents = list(exchanged(target))
    most = max(MOST_EXCHANGED // target.cost, LEAST_EXCHANGED)
    for content in contents[:: 1 + len(contents) // most]:
        examine(target, content, twice=False)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_past_finding_stays_fixed(path: Path) -> None:
    examine(BY_NAME[path.parent.name], path.read_bytes())
