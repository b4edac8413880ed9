"""A holder that computes nothing is not called active, in any form in which a node is told of."""

import csv
import io

from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from tests.web.truth import QUERY, rows
from tests.web.views_reading import node_page, read, scenario

# Without any process, seen for half a minute.
BRUNO = ("ml", "nb-bruno", "notebook")


def test_the_text_calls_it_quiet() -> None:
    """In the column of states, with for how long."""
    shown = scenario("t4-timeslicing")
    text = snapshot_text(shown, now=shown.timestamp)
    (line,) = (line for line in text.splitlines() if "/".join(BRUNO) in line)
    assert line.endswith("0.00 / 0.10 GPU          quiet (30 s)")


def test_json_calls_it_quiet() -> None:
    """By a code, with the seconds."""
    found = snapshot_json(scenario("t4-timeslicing"))["containers"]
    (row,) = (row for row in found if (row["namespace"], row["pod"], row["container"]) == BRUNO)
    assert (row["state"], row["quiet_seconds"]) == ("quiet", 30.0)


def test_csv_calls_it_quiet() -> None:
    """By the same code, with the seconds."""
    found = csv.DictReader(io.StringIO(snapshot_csv(scenario("t4-timeslicing"))))
    (row,) = (row for row in found if (row["namespace"], row["pod"], row["container"]) == BRUNO)
    assert (row["state"], row["quiet_seconds"]) == ("quiet", "30.0")


def test_the_page_calls_it_quiet() -> None:
    """In the table of holders, with for how long."""
    shown = read(node_page(scenario("t4-timeslicing"), query=QUERY))
    (cells,) = (cells for holder, _, cells in rows(shown) if holder == BRUNO)
    assert (cells["State"].text, cells["Quiet for"].text) == ("quiet", "30 s")
