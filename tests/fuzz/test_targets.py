"""Whatever bytes come, every decoder keeps its promises: hypothesis over all targets, and past findings.

A few seconds of the processor in all; `make fuzz` goes on where this ends, guided by what code is reached.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.edits import exchanged, inputs_of
from tests.fuzz.every import TARGETS
from tests.fuzz.target import Target, examine

CORPUS = Path(__file__).parent / "corpus"
BY_NAME = {target.name: target for target in TARGETS}
EXAMPLES = 50
MOST_EXCHANGED, LEAST_EXCHANGED = 800, 120
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_decoder_keeps_its_promises_on_any_input(target: Target) -> None:
    """Damaged input is decoded to what can be, or refused as documented, and always the same."""

    # Always the same inputs: what CI finds is found again, and new ones are looked for in the long runs.
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.just(b"") | inputs_of(target))
    def keeps(content: bytes) -> None:
        examine(target, content)

    keeps()


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
