"""Whatever bytes come, every decoder keeps its promises: hypothesis over all targets, and past findings.

A few seconds of the processor in all; `make fuzz` goes on where this ends, guided by what code is reached.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.door import Door
from tests.fuzz.edits import exchanged, inputs_of
from tests.fuzz.every import TARGETS
from tests.fuzz.target import Target, examine

CORPUS = Path(__file__).parent / "corpus"
BY_NAME = {target.name: target for target in TARGETS}
EXAMPLES = 40
# Of all inputs of a target, so many are decoded to something, and to be so without being seeds or alike. As
# they are always the same ones, so are the numbers: 0.93 and 0.84 in the mean of all targets.
LEAST_OPENED, LEAST_FRESH = 0.65, 0.35
# Their only text is the id of a device, of which there are few.
FEW_VALID = frozenset(f"system-{name}" for name in ("amd", "intel", "nos", "nvidia", "nvshare", "vgpu"))
MOST_EXCHANGED, LEAST_EXCHANGED = 560, 80
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@dataclass
class Tried:
    """What became of the inputs of a target: how many there were, and how many were decoded to something.

    ``fresh`` are those of the latter that are no seeds, each once.
    """

    inputs: int = 0
    opened: int = 0
    fresh: set[bytes] = field(default_factory=set)


@cache
def _tried(target: Target) -> Tried:
    """Hold a target to its promises on inputs that hypothesis makes."""
    door, tried = Door(target), Tried()

    # Always the same inputs: what CI finds is found again, and new ones are looked for in the long runs.
    @settings(
        max_examples=EXAMPLES,
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

    examine(target, b"")
    keeps()
    tried.fresh -= set(target.seeds())
    return tried


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_decoder_keeps_its_promises_on_any_input(target: Target) -> None:
    """Damaged input is decoded to what can be, or refused as documented, and always the same."""
    assert _tried(target).inputs


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_most_inputs_get_behind_the_first_check(target: Target) -> None:
    """What is tried is not what any decoder turns away: most is decoded to something, no two alike."""
    tried = _tried(target)
    fresh = 0.0 if target.name in FEW_VALID else LEAST_FRESH

    assert tried.opened >= LEAST_OPENED * tried.inputs
    assert len(tried.fresh) >= fresh * tried.inputs


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_part_of_a_valid_input_may_be_anything(target: Target) -> None:
    """What stands in the place of a number, a name or a mark is refused, or decoded to what can be."""
    contents = list(exchanged(target))
    most = max(MOST_EXCHANGED // target.cost, LEAST_EXCHANGED)
    for content in contents[:: 1 + len(contents) // most]:
        examine(target, content, twice=False)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_seed_is_valid(target: Target) -> None:
    """What inputs are made of is decoded: a decoder that refuses all of it would be fuzzed at its door."""
    accepted = 0
    for seed in target.seeds():
        examine(target, seed)
        try:
            target.decode(seed)
        except target.refuses:
            continue
        accepted += 1

    assert accepted


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_once_found_is_mended(path: Path) -> None:
    """An input that broke a promise once does not break it again."""
    examine(BY_NAME[path.parent.name], path.read_bytes())
