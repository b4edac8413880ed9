"""The table of processes: what runs on a GPU and for whom, or why that cannot be known here."""

import pytest

from exporter.model import ContainerRef, DeviceKey, ProcessRow
from exporter.web.node.pages.process_table import MOST_SHOWN, processes_of_gpu
from exporter.web.node.pages.scene import Scene
from exporter.wording import UNKNOWN
from tests.page.web.views_reading import (
    GIB,
    SCENARIOS,
    UUID,
    gpu,
    gpu_page,
    holder,
    mig,
    read,
    scenario,
    snapshot,
)

HOSTILE = '"><img src=x onerror=alert(1)>'


def process(pid, device=UUID, **facts) -> ProcessRow:
    """Return a process of a pod; keywords replace fields."""
    key = device if isinstance(device, DeviceKey) else DeviceKey(device)
    values = {
        "command": "python3",
        "kinds": frozenset({"compute"}),
        "holder": ContainerRef("ml", "train", "main"),
        "memory": 2 * GIB,
        "compute": 0.25,
        "place": "pod",
    }
    return ProcessRow(device=key, pid=pid, **(values | facts))


def section(shown, uuid=UUID):
    """Return the processes on the page of a GPU."""
    return read(gpu_page(shown, uuid)).one("section", id="processes")


def rows(shown, uuid=UUID) -> list[list[str]]:
    """Return what stands in the cells of the table."""
    found = section(shown, uuid).one("tbody").all("tr")
    return [[cell.text for cell in line.all() if cell.tag in ("th", "td")] for line in found]


def test_a_process_has_its_pod_and_its_use() -> None:
    shown = snapshot([gpu()], processes=(process(41, kinds=frozenset({"mps"})),))

    assert rows(shown) == [["python3", "41", "ml/ train main", "MPS client", "2.0 GiB", "0.25 GPU"]]
    assert section(shown).one("a", of="who").attributes["href"] == "../holder/ml/train/main"


def test_what_is_not_known_is_a_dash_with_a_reason() -> None:
    shown = snapshot([gpu()], processes=(process(41, command=None, memory=None, compute=None),))
    cells = section(shown).one("tbody").all("abbr")

    assert [cell.text for cell in cells] == [UNKNOWN] * 3
    assert all(cell.attributes["title"].startswith("not known: ") for cell in cells)


def test_processes_without_a_holder_say_where_they_are() -> None:
    where = [
        process(pid, holder=None, place=place) for pid, place in ((1, "host"), (2, "pod"), (3, "unknown"))
    ]
    texts = [row[2] for row in rows(snapshot([gpu()], processes=tuple(where)))]

    assert texts == [
        "host process, not in a pod",
        "pod with unknown name",
        "pod not known",
    ]


def test_processes_inside_mig_name_their_device() -> None:
    cut = gpu(sharing="mig", mig_enabled=True, mig_slices=7)
    shown = snapshot([cut, gpu(1)], migs=[mig("MIG-a")], processes=(process(7, DeviceKey(UUID, "MIG-a")),))

    assert "2g.5gb" in rows(shown)[0]
    assert not section(shown, "GPU-1").all("table")


@pytest.mark.parametrize(
    ("row", "node", "text"),
    [
        (gpu(processes=()), {}, "No process has a context here"),
        (gpu(), {}, "does not list the processes"),
        (gpu(up=False), {}, "does not answer"),
        (gpu(), {"process_view": False, "process_view_reason": "set hostPID: true"}, "set hostPID: true"),
    ],
)
def test_a_table_without_rows_says_why(row, node, text) -> None:
    found = section(snapshot([row], node=node))

    assert text in found.text
    assert not found.all("table")


def test_names_of_processes_stay_text() -> None:
    shown = snapshot([gpu()], processes=(process(1, command=HOSTILE), process(2, command="a\u202eb\x1b[2J")))

    assert not section(shown).all("img")
    assert rows(shown)[1][0] == "a\\u202eb\\x1b[2J"


def test_of_many_processes_the_largest_are_shown() -> None:
    many = tuple(process(pid, memory=pid) for pid in range(1, MOST_SHOWN + 11))
    shown = snapshot([gpu()], processes=many, processes_left_out=5)
    table = processes_of_gpu(Scene(shown, now=shown.timestamp), shown.gpus[0])

    assert [row.process.pid for row in table.rows] == list(range(11, MOST_SHOWN + 11))
    assert "15 more on this node are left out" in table.more


def test_every_process_of_the_demo_has_a_name() -> None:
    commands = [
        row.command for name in SCENARIOS for row in scenario(name).processes if row.place != "unknown"
    ]

    assert len(commands) > 20
    assert all(command and len(command) <= 15 and " " not in command for command in commands)


def test_a_holder_without_processes_is_not_shown_with_those_of_others() -> None:
    shown = snapshot([gpu(), gpu(1)], [holder("train")], processes=(process(1), process(2, "GPU-1")))

    assert [row[1] for row in rows(shown)] == ["1"]
