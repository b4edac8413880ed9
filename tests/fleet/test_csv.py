"""Nodes and containers as CSV for a spreadsheet."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, Share, Units
from exporter.fleet.csv_tables import HOLDER_COLUMNS, NODE_COLUMNS, holders_csv, nodes_csv
from exporter.fleet.json_data import fleet_json
from exporter.fleet.model import Fleet, Node, NodeKey, Target
from exporter.fleet.watch import FleetRead
from exporter.formats.json_csv import snapshot_csv
from tests.core.commands.program import run
from tests.fleet.answering import AT, GPU, HOLDER, Samples, answering, inspected, of_node
from tests.fleet.shown import asked, node
from tests.page.web.views_reading import gpu, holder, snapshot

GIB = 1024.0**3
SHARE = Share(Amount(4 * GIB, 1), Amount(GIB, 1, 1), UNKNOWN_AMOUNT)
MIG = {**HOLDER, "mig_uuid": "MIG-1", "pod": "train-1"}
ANSWERS: dict[str, Samples] = {
    r"gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "time-slicing"}, 1.0)],
    r"gpuslice_gpu_holders": [(GPU, 2.0)],
    r"gpuslice_container_info": [
        ({**HOLDER, "resource": "nvidia.com/gpu", "sharing": "time-slicing", "isolation": "none"}, 1.0),
        (MIG, 1.0),
    ],
    r"gpuslice_container_slices": [(HOLDER, 2.0), (MIG, 1.0)],
    r"gpuslice_container_memory_entitled_bytes": [(HOLDER, 4 * GIB)],
    r"gpuslice_container_compute_used_ratio": [(HOLDER, 0.0)],
}


def rows(text: str) -> list[dict[str, str]]:
    """Return the lines by column; each has a cell for each column."""
    lines = list(csv.reader(io.StringIO(text)))
    assert {len(line) for line in lines} == {len(lines[0])}
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def _fleet(*nodes: Node) -> FleetRead:
    return FleetRead(fleet=Fleet(at=AT, window=3600.0, nodes=nodes), read_at=AT, reads=1)


def test_a_node_has_one_line_with_the_fields_of_its_json() -> None:
    """An unknown value is an empty cell; a sum without its unknown parts is named as a lower bound."""
    units = (Units("tencent.com/vcuda-core", Amount(100, 1), Amount(300, 1)), Units("x/y", Amount(2, 1, 1)))
    one = node(
        cluster="east",
        gpus=Amount(2, 1),
        models=(("Tesla T4", 2),),
        sharing=("time-slicing", "mps"),
        memory=SHARE,
        memory_total=Amount(0.0, 1),
        units=units,
        released=False,
    )
    (row,) = rows(nodes_csv([one]))

    assert tuple(row) == NODE_COLUMNS
    assert (row["cluster"], row["node"], row["job"], row["answers"]) == ("east", "n1", "gpus", "true")
    assert (row["models"], row["sharing"], row["driver_released"]) == (
        "2 Tesla T4",
        "time-slicing; mps",
        "false",
    )
    assert (row["gpus"], row["memory_total_bytes"], row["memory_wasted_bytes"]) == ("2", "0", "")
    assert (row["memory_held_bytes"], row["memory_used_bytes"]) == (f"{4 * GIB:.0f}", f"{GIB:.0f}")
    assert row["units"] == "tencent.com/vcuda-core 100 of 300; x/y 2 of unknown"
    assert row["lower_bounds"] == "memory_used_bytes; units"
    assert row["compute_used_gpus"] == row["slices_held"] == row["reason"] == ""
    (document,) = fleet_json(Fleet(at=AT, window=1.0, nodes=(one,)))["nodes"]
    plain = {name for name, value in document.items() if not isinstance(value, dict | list)}
    assert plain <= set(NODE_COLUMNS)


def test_a_silent_node_has_its_reason_and_no_zero() -> None:
    silent = node(age=None, silent="its exporter does not answer")
    (row,) = rows(nodes_csv([silent]))

    assert (row["answers"], row["reason"]) == ("false", "its exporter does not answer")
    assert set(row.values()) == {"n1", "gpus", "n1:9836", "false", "its exporter does not answer", ""}


async def test_a_container_on_a_device_has_one_line() -> None:
    """In the columns of a node's CSV, behind the name of the cluster."""
    first, second = rows(holders_csv(await inspected(of_node(ANSWERS))))

    assert tuple(first) == HOLDER_COLUMNS
    of_a_node = next(csv.reader(io.StringIO(snapshot_csv(snapshot([gpu()], [holder("a")])))))
    assert set(HOLDER_COLUMNS) - {"cluster"} <= set(of_a_node)
    assert [name for name in of_a_node if name in HOLDER_COLUMNS] == [*HOLDER_COLUMNS[1:]]
    assert (first["node"], first["gpu"], first["uuid"], first["mig_uuid"]) == ("n1", "0", "GPU-1", "")
    assert (first["namespace"], first["pod"], first["container"]) == ("ml", "train-0", "main")
    assert (first["slices"], first["memory_entitled_bytes"]) == ("2", f"{4 * 2**30}")
    assert (first["compute_used_ratio"], first["memory_used_bytes"], first["claim"]) == ("0.0", "", "")
    assert (second["mig_uuid"], second["memory_entitled_bytes"], second["compute_used_ratio"]) == (
        "MIG-1",
        "",
        "",
    )


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx")


@given(st.sampled_from(FORMULAS), st.text(max_size=9))
def test_no_cell_is_a_formula(start: str, rest: str) -> None:
    """Names in Prometheus may be anybody's."""
    name = start + rest
    row = rows(
        nodes_csv([Node(key=NodeKey(name, name), target=Target(name, name, name), age=1.0, sharing=(name,))])
    )[0]

    texts = [row[column] for column in ("cluster", "node", "job", "instance", "sharing")]
    assert all(text.startswith(f"'{start[0]}") for text in texts)


@pytest.mark.parametrize(
    ("arguments", "columns", "lines"),
    [
        ((), NODE_COLUMNS, 1),
        (("n1",), NODE_COLUMNS, 1),
        (("--details",), HOLDER_COLUMNS, 2),
        (("n1", "--details"), HOLDER_COLUMNS, 2),
        (("--namespace", "ml"), HOLDER_COLUMNS, 2),
    ],
)
def test_inspect_prints_nodes_or_with_details_containers(arguments, columns, lines) -> None:
    with answering(of_node(ANSWERS)) as url:
        done = run("inspect", *arguments, "--output", "csv", "--prometheus-url", url)

    assert done.returncode == 0
    printed = rows(done.stdout)
    assert len(printed) == lines
    assert all(tuple(row) == columns for row in printed)


def test_what_a_table_does_not_have_is_said_beside_it() -> None:
    """A query that failed, and holders that are not known."""

    def answer(expression: str) -> Samples | str:
        if expression.startswith("gpuslice_gpu_holders"):
            return "too many samples"
        return of_node(ANSWERS)(expression)

    with answering(answer) as url:
        done = run("inspect", "--details", "-o", "csv", "--prometheus-url", url)

    assert done.returncode == 1
    assert len(rows(done.stdout)) == 2
    assert "not known: number of holders: Prometheus refuses a query: too many samples\n" in done.stderr
    assert "not known: all holders on n1\n" in done.stderr


@pytest.mark.parametrize(("query", "accept"), [("?format=csv", "*/*"), ("", "text/csv")])
async def test_the_hub_returns_the_nodes_as_csv(query, accept) -> None:
    response = await asked(_fleet(node(), node("n2")), f"/api/v1/fleet{query}", Accept=accept)

    assert response.status == 200
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert response.headers["Content-Disposition"] == 'attachment; filename="gpuslice-nodes.csv"'
    assert [row["node"] for row in rows(response.text)] == ["n1", "n2"]


async def test_without_data_the_hub_has_no_empty_table() -> None:
    read = FleetRead(reads=1, error="Prometheus cannot be reached: Connection refused", failing_since=1.0)
    response = await asked(read, "/api/v1/fleet?format=csv", Accept="application/json")

    assert response.status == 503
    assert json.loads(response.text) == {"error": read.error}
