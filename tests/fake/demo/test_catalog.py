"""Finding scenarios."""

import pytest

from exporter.demo.scenario import catalog
from exporter.demo.scenario.catalog import dump, parse
from exporter.documents import DocumentError
from tests.fake.demo.making import made


def test_every_scenario_of_the_catalog_has_its_name_and_a_description_and_can_be_dumped():
    scenarios = catalog.scenarios()
    assert tuple(scenario.name for scenario in scenarios) == catalog.names()
    assert all(scenario.description for scenario in scenarios)
    assert all(parse(dump(scenario)) == scenario for scenario in scenarios)
    assert catalog.DEFAULT in catalog.names()
    assert catalog.load() == catalog.load(catalog.DEFAULT)


def test_an_unknown_name_is_an_error_with_the_known_ones():
    with pytest.raises(DocumentError) as caught:
        catalog.load("t5")
    assert all(name in str(caught.value) for name in catalog.names())


def test_a_path_loads_a_file(tmp_path):
    """A name with a slash or .json is a path."""
    path = tmp_path / "mine.json"
    path.write_text(dump(made()))
    assert catalog.load(str(path)) == made()
    with pytest.raises(DocumentError, match=r"no\.json: No such file"):
        catalog.load(str(tmp_path / "no.json"))
