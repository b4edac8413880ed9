"""Lines that are kept from page to page are those that would be rendered now."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition import Exposition
from exporter.exposition.lines import Entities, lines_of
from exporter.metrics import Family, LabelledFamily
from exporter.model import Snapshot
from tests.exposition.test_any_snapshot import SNAPSHOT


def _told(exposition: Exposition, snapshot: Snapshot) -> dict[str, bytes]:
    return {family.name: samples for family, samples in exposition.blocks(snapshot)}


@pytest.mark.slow
@given(st.lists(SNAPSHOT, min_size=2, max_size=3))
def test_a_page_after_others_is_as_if_it_were_the_first(snapshots: list[Snapshot]) -> None:
    """Whatever was on the pages before, and also where the first of them comes again."""
    exposition = Exposition()
    for snapshot in (*snapshots, *snapshots):
        assert _told(exposition, snapshot) == _told(Exposition(), snapshot)


def test_what_stays_is_not_spelt_again(full: Snapshot) -> None:
    """Of two snapshots that differ in a time, all families but that of it have the same bytes in memory."""
    exposition = Exposition()
    before = _told(exposition, full)
    after = _told(exposition, replace(full, timestamp=full.timestamp + 5))
    new = {name for name, samples in after.items() if samples is not before[name]}
    assert "gpuslice_snapshot_timestamp_seconds" in new
    assert len(after) - len(new) > 50
    assert not {name for name in new if name.startswith("gpuslice_container_")}


PLAIN = Family("value", "gauge", "gpu", "", lambda row: row)
LABELLED = LabelledFamily("value", "gauge", "gpu", "", ("of",), lambda row: [((f"{row}",), row)])


@pytest.mark.parametrize("family", [PLAIN, LABELLED], ids=["plain", "labelled"])
def test_a_value_that_cannot_be_spelt_costs_its_page_and_none_after_it(
    family: Family | LabelledFamily,
) -> None:
    """A family that failed is not kept as if it had been rendered."""
    lines, labels = lines_of(family), ('{a="1"}',)
    good = lines.samples(Entities(labels, (1,)))
    with pytest.raises(TypeError):
        lines.samples(Entities(labels, (_Unspeakable(),)))
    with pytest.raises(TypeError):
        lines.samples(Entities(labels, (_Unspeakable(),)))
    assert lines.samples(Entities(labels, (1,))) == good


class _Unspeakable:
    """A value that equals all others of its kind, and has no spelling."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unspeakable)

    __hash__ = None  # type: ignore[assignment]  # never hashed

    def __repr__(self) -> str:
        raise TypeError
