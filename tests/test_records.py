"""Records are made and copied faster than the standard library does it, and are what it would have made."""

import dataclasses

import pytest

from exporter.model.records import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A record of two fields."""

    name: str
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deep(Place):
    """A record that has fields of its own beside those of another."""

    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A record of one field, which is itself a sequence."""

    names: tuple[str, ...] = ()


def test_equal_records_are_one_key() -> None:
    """Records stand in sets and dictionaries by what is in them."""
    assert {Place(name="a", number=1), Place(name="a", number=1), Place(name="a")} == {
        Place(name="a", number=1),
        Place(name="a"),
    }


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (Place(name="a"), {"number": 3}),
        (Place(name="a", number=3), {"number": None}),
        (Deep(name="a", number=1, depth=2), {"depth": 5}),
        (Deep(name="a", number=1, depth=2), {"name": "b"}),
        (Single(names=("a", "b")), {"names": ("c",)}),
        (Single(names=("a", "b")), {}),
    ],
)
def test_a_copy_is_that_of_the_standard_library(record: Place | Single, change: dict[str, object]) -> None:
    """It differs from the record in what was asked for only, and the record stays as it was."""
    before = dataclasses.asdict(record)
    assert replace(record, **change) == dataclasses.replace(record, **change)
    assert dataclasses.asdict(record) == before


def test_a_copy_with_a_field_that_there_is_not() -> None:
    """A name that is wrong is an error, as in the standard library."""
    with pytest.raises(TypeError, match="colour"):
        replace(Place(name="a"), colour="red")  # type: ignore[call-arg]
