"""Lines kept from page to page are those that would be rendered now."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Exposition
from exporter.exposition.lines import Entities, lines_of
from exporter.metrics import Family, LabelledFamily
from exporter.model import Snapshot
from tests.core.exposition.test_any_snapshot import SNAPSHOT


def _samples(exposition: Exposition, snapshot: Snapshot) -> dict[str, bytes]:
    return {family.name: samples for family, samples in exposition.blocks(snapshot)}


@settings(max_examples=25)
@given(st.lists(SNAPSHOT, min_size=2, max_size=3))
def test_a_page_does_not_depend_on_the_pages_before_it(snapshots: list[Snapshot]) -> None:
    exposition = Exposition()
    for snapshot in (*snapshots, *snapshots):
        assert _samples(exposition, snapshot) == _samples(Exposition(), snapshot)


def test_unchanged_families_are_not_rendered_again(full: Snapshot) -> None:
    """If two snapshots differ in a time only, all other families have the same bytes in memory."""
    exposition = Exposition()
    first = _samples(exposition, full)
    after = _samples(exposition, replace(full, timestamp=full.timestamp + 5))
    new = {name for name, samples in after.items() if samples is not first[name]}
    assert "gpuslice_snapshot_timestamp_seconds" in new
    assert len(after) - len(new) > 50
    assert not {name for name in new if name.startswith("gpuslice_container_")}


PLAIN = Family("value", "gauge", "gpu", "", lambda row: row)
LABELLED = LabelledFamily("value", "gauge", "gpu", "", ("of",), lambda row: [((f"{row}",), row)])


@pytest.mark.parametrize("family", [PLAIN, LABELLED], ids=["plain", "labelled"])
def test_a_value_that_cannot_be_rendered_breaks_its_page_and_none_after_it(
    family: Family | LabelledFamily,
) -> None:
    lines, labels = lines_of(family), ('{a="1"}',)
    good = lines.samples(Entities(labels, (1,)))
    with pytest.raises(TypeError):
        lines.samples(Entities(labels, (_Unprintable(),)))
    with pytest.raises(TypeError):
        lines.samples(Entities(labels, (_Unprintable(),)))
    assert lines.samples(Entities(labels, (1,))) == good


class _Unprintable:
    """A value that equals all others of its class, and cannot be printed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unprintable)

    __hash__ = None  # type: ignore[assignment]  # never hashed

    def __repr__(self) -> str:
        raise TypeError
