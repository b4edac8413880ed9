"""The builder of rows: prefix, level, type and group are written once, and a missing part has no sample."""

from types import SimpleNamespace

from exporter.metrics.family import Rows, keyed, whole, word

ROWS = Rows("acme_", "gpu", whole)
PART = ROWS.of(lambda row: row.part, "memory")
KNOWN, UNKNOWN = SimpleNamespace(part=SimpleNamespace(bytes=7, name="ab")), SimpleNamespace(part=None)


def test_a_family_has_the_prefix_level_and_group_of_its_builder() -> None:
    family = PART.gauge("bytes", "Bytes.", lambda part: part.bytes)

    assert (family.name, family.type, family.level, family.group) == ("acme_bytes", "gauge", "gpu", "memory")
    assert PART.grouped("bar1").counter("x_total", "X.", lambda part: part.bytes).group == "bar1"
    assert PART.of(lambda part: part.name).group == "memory"


def test_a_record_without_the_part_has_no_value() -> None:
    family = PART.gauge("bytes", "Bytes.", lambda part: part.bytes)

    assert [family.value(row) for row in (KNOWN, UNKNOWN)] == [7, None]
    assert [PART.gauge("bytes", "The field of its name.").value(row) for row in (KNOWN, UNKNOWN)] == [7, None]
    assert ROWS.gauge("known", "Known.", lambda row: int(row.part is not None)).value(UNKNOWN) == 0


def test_a_record_without_the_part_has_no_samples() -> None:
    by_name = PART.gauge_by("by_name{name}", "By name.", lambda part: keyed({part.name: part.bytes}, 2))

    assert (by_name.name, by_name.labels) == ("acme_by_name", ("name",))
    assert list(by_name.samples(KNOWN)) == [(("ab",), 3.5)]
    assert list(by_name.samples(UNKNOWN)) == []


def test_an_info_family_has_a_sample_of_1_for_each_name() -> None:
    info = PART.info("info{name}", "Name.", lambda part: word(part.name))
    several = PART.infos("letters_info{letter}", "Letters.", lambda part: ((letter,) for letter in part.name))

    assert list(info.samples(KNOWN)) == [(("ab",), 1)]
    assert list(info.samples(SimpleNamespace(part=SimpleNamespace(name="")))) == []
    assert (several.several, list(several.samples(KNOWN))) == (True, [(("a",), 1), (("b",), 1)])
