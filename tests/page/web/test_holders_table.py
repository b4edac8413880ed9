"""The table of holders: filter, order and columns, all without script."""

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from exporter.model import ContainerRef, DeviceKey, PodRow, SliceCount, Totals
from exporter.web.node.pages.holder_cells import row_id
from exporter.web.node.pages.holder_columns import COLUMNS
from exporter.web.node.parameters import Query
from exporter.wording import UNKNOWN
from tests.page.web.holders_reading import NODE, ROWS, asked, pods
from tests.page.web.views_reading import GIB, NOW, draw, gpu, gpu_page, holder, read, snapshot

# Two pods that were looked for among many: on the same device their rows have the same short name.
_ALIKE = ("web-10290", "web-72623")


def test_without_a_query_all_rows_are_in_the_order_of_the_snapshot() -> None:
    section = asked("")

    assert pods(section) == [row.holder.pod for row in ROWS]
    assert section.one(id="holders-count").text == "5 holders"
    assert not [head for head in section.all("th", scope="col") if "aria-sort" in head.attributes]


@pytest.mark.parametrize(
    ("sort", "shown"),
    [
        ("holder", ["anna", "old", "train 0", "web", "bench"]),
        ("state", ["web", "bench", "old", "anna", "train 0"]),
        ("quiet", ["anna", "bench", "web", "old", "train 0"]),
        ("-quiet", ["old", "anna", "bench", "web", "train 0"]),
        ("gpu", ["anna", "bench", "web", "train 0", "old"]),
        ("-gpu", ["train 0", "old", "bench", "web", "anna"]),
        ("memory", ["bench", "anna", "train 0", "old", "web"]),
        ("-memory", ["web", "anna", "train 0", "old", "bench"]),
        ("compute", ["old", "anna", "bench", "web", "train 0"]),
        ("-compute", ["anna", "bench", "web", "old", "train 0"]),
        ("isolation", ["anna", "bench", "train 0", "old", "web"]),
        ("-age", ["anna", "bench", "train 0", "web", "old"]),
    ],
)
def test_rows_are_sorted_and_the_unknown_is_last(sort, shown) -> None:
    section = asked(f"?sort={sort}")

    assert pods(section) == shown


def test_slices_are_sorted_by_their_numbers() -> None:
    offers = (SliceCount("nvidia.com/gpu", 12, 12),)
    rows = [holder(f"p{count}", slices=count, isolation="none") for count in (10, 2, 1)]

    node = snapshot([gpu(slices=offers, sharing="time-slicing")], rows)

    assert pods(asked("?sort=slice", node)) == ["p1", "p2", "p10"]


def test_a_heading_sorts_descending_then_ascending_then_not() -> None:
    hrefs, directions = [], []
    url = ""
    for _ in range(3):
        head = asked(url).one("th", of="h-memory")
        url = head.one("a").attributes["href"].removesuffix("#holders")
        hrefs.append(url)
        directions.append(head.attributes.get("aria-sort"))

    assert hrefs == ["?sort=-memory", "?sort=memory", "?"]
    assert directions == [None, "descending", "ascending"]


def test_links_of_headings_keep_the_rest_of_the_query() -> None:
    head = asked("?q=ml&columns=age,memory&range=6h").one("th", of="h-age")

    assert head.one("a").attributes["href"] == "?q=ml&sort=-age&columns=memory,age&range=6h#holders"


def test_columns_are_chosen() -> None:
    section = asked("?columns=age&columns=efficiency,gpu")

    assert [head.text for head in section.all("th", scope="col")] == [
        "Namespace / pod",
        "GPU",
        "Efficiency",
        "Age",
    ]
    boxes = section.all("input", type="checkbox")
    assert [box.attributes["value"] for box in boxes if "checked" in box.attributes] == [
        "gpu",
        "efficiency",
        "age",
    ]


def test_every_heading_has_as_many_cells_aligned_as_it_is() -> None:
    keys = ",".join(column.key for column in COLUMNS)
    section = asked(f"?columns={keys}", replace(NODE))

    headings = section.one("thead").all("th")
    for row in section.one("tbody").all("tr"):
        assert [cell.tag for cell in row.children] == ["th", *["td"] * (len(headings) - 1)]
        assert [cell.classes & {"end"} for cell in row.children] == [
            heading.classes & {"end"} for heading in headings
        ]
        for cell in row.all("td"):
            assert cell.attributes["data-label"]


def test_unknown_columns_orders_and_states_are_reported() -> None:
    section = asked("?sort=<b>&columns=foo,gpu&state=asleep")

    remarks = [each.text for each in section.all("p", of="remark")]
    assert remarks == [
        "Cannot sort by “<b>”.",
        "Unknown column “foo”.",
        "Unknown state “asleep”.",
    ]
    assert len(pods(section)) == len(ROWS)


def test_efficiency_is_use_per_measured_entitlement() -> None:
    life = Totals(
        first_seen=NOW - 1000,
        used_gpu_seconds=90.0,
        measured_gpu_seconds=200.0,
        measured_use_gpu_seconds=50.0,
        last_active=NOW,
    )
    rows = [
        holder("a", totals=replace(life, entitled_gpu_seconds=1000.0)),
        holder(
            "b", totals=replace(life, used_gpu_seconds=None, measured_use_gpu_seconds=None), compute_used=None
        ),
        holder("c", totals=replace(life, measured_gpu_seconds=None), slices=0, compute_entitled=None),
        holder("d", totals=replace(life, measured_gpu_seconds=0.0)),
        holder("e", totals=None),
    ]

    cells = asked("?columns=efficiency", snapshot([gpu()], rows)).one("tbody").all("td")

    assert [cell.text for cell in cells] == ["25 %", *[UNKNOWN] * 4]
    reasons = [cell.one("abbr").attributes["title"] for cell in cells[1:]]
    assert "does not report the compute of its processes" in reasons[0]
    assert "it holds nothing here" in reasons[1]
    assert all("not enough data" in reason for reason in reasons[2:])


def test_unknown_processes_and_age_are_dashes() -> None:
    rows = [holder("a", processes=None, totals=None), holder("b", processes=0)]

    first, second = asked("?columns=processes,age", snapshot([gpu()], rows)).one("tbody").all("tr")

    assert [cell.text for cell in first.all("td")] == [UNKNOWN, UNKNOWN]
    assert all(cell.one("abbr").attributes["title"] for cell in first.all("td"))
    assert [cell.text for cell in second.all("td")] == ["0", "2 h 30 min"]


def test_the_last_hour_is_a_column_if_there_is_a_history() -> None:
    node = snapshot([gpu()], [holder("a")])
    with_history = draw(
        node, sparkline=lambda row: Markup("<svg><title>{}</title></svg>").format(row.holder.pod)
    )

    cell = with_history.one("section", id="holders").one("td", of="hour")
    assert cell.one("title").children == ["a"]
    assert "Last hour" not in asked("?columns=hour", node).text


def test_an_unknown_hour_is_a_dash_with_the_reason() -> None:
    rows = [holder("a"), *(holder(name, compute_used=None, sharing=name) for name in ("mps", "nos"))]

    page = draw(snapshot([gpu()], rows), sparkline=lambda _row: Markup())

    cells = page.one("section", id="holders").all("td", of="hour")
    assert [cell.text for cell in cells] == [UNKNOWN, UNKNOWN, UNKNOWN]
    reasons = [cell.one("abbr").attributes["title"] for cell in cells]
    assert "no history of the last hour yet" in reasons[0]
    assert ["that of one process, the MPS server" in reason for reason in reasons] == [False, True, True]


def test_rows_with_the_same_short_id_are_both_shown() -> None:
    """A container cannot hide another one by its name."""
    one, other = (ContainerRef("ml", pod, "main") for pod in _ALIKE)
    assert row_id(one, DeviceKey("GPU-0")) == row_id(other, DeviceKey("GPU-0"))
    node = snapshot([gpu()], [holder(ref.pod, holder=ref) for ref in (one, other)])

    body = asked("", node).one("tbody")

    assert pods(asked("", node)) == list(_ALIKE)
    assert len({row.attributes["id"] for row in body.all("tr")}) == 2


def test_control_characters_in_names_are_escaped() -> None:
    node = snapshot([gpu()], [holder("a"), holder("b\u202ec"), holder("d")])

    assert pods(asked("", node)) == ["a", "b\\u202ec", "d"]


def test_a_row_leads_to_its_holder() -> None:
    node = snapshot([gpu()], [holder("x", holder=ContainerRef("n s", "a/b?c", "#d"))])

    link = asked("", node).one("tbody").one("th").one("a")

    assert link.attributes["href"] == "holder/n%20s/a%2Fb%3Fc/%23d"


def test_findings_lead_to_the_rows_they_count() -> None:
    page = draw(NODE)

    links = [link.attributes["href"] for link in page.one("section", id="cards").all("a")]
    found = {href: pods(asked(href.removesuffix("#holders"))) for href in links if "state=" in href}
    assert found == {
        "?state=over-share#holders": ["web"],
        "?state=unheld#holders": ["bench"],
        "?state=idle-memory#holders": ["old"],
    }


def test_the_page_of_a_gpu_has_a_table_of_its_own() -> None:
    page = read(gpu_page(NODE, "GPU-13", query=Query(sort="-memory")))

    section = page.one("section", id="holders")
    assert pods(section) == ["train 0", "old"]
    assert "gpu" not in [choice.attributes["name"] for choice in section.all("select")]


def test_a_form_sends_what_it_does_not_show() -> None:
    form = asked("?sort=-memory&range=6h").one("form")

    hidden = {each.attributes["name"]: each.attributes["value"] for each in form.all("input", type="hidden")}
    assert hidden == {"sort": "-memory", "range": "6h"}
    assert form.attributes["method"] == "get"
    assert form.one("button").attributes["type"] == "submit"


def test_large_pools_are_shortened_on_the_page_of_the_node() -> None:
    rows = [
        holder(f"p-{number:02}", memory_used=GIB // 4, memory_entitled=GIB // 3, compute_used=0.01)
        for number in range(48)
    ]
    rows[40] = replace(rows[40], memory_used=GIB)
    shared = gpu(sharing="mps", slices=(SliceCount("nvidia.com/gpu", 48, 48),))
    node = snapshot([shared], rows)

    keys = draw(node).one("ul", of="keys")
    listed = [line.text for line in keys.all("li") if re.match(r"\d", line.text)]
    assert len(listed) == 12
    assert any("p-40" in line for line in listed)
    more = keys.one("a", href="gpu/GPU-0#holders")
    assert more.text == "and 36 others"
    bars = draw(node).one("section", of="gpu").all("svg", of="bar")
    assert all(24 <= len(bar.all("title")) <= 28 for bar in bars)

    # Which page it is decides, and not where it lies.
    assert "and 36 others" in draw(node, root="../").one("ul", of="keys").text
    whole = read(gpu_page(node, "GPU-0", root=""))
    assert len([each for each in whole.one("ul", of="keys").all("li") if re.match(r"\d", each.text)]) == 48


def test_labels_of_the_pod_are_below_its_name() -> None:
    """A few of them in short, all in the tooltip; hostile ones stay text."""
    hostile = '"><img src=x onerror=alert(1)>'
    labels = (("app.kubernetes.io/name", "train"), ("evil", hostile), ("team", "nlp"), ("tier", "1"))
    pods_of = (PodRow(namespace="ml", name="a", uid="", labels=labels),)
    section = asked("?columns=state", snapshot([gpu()], [holder("a"), holder("b")], pods=pods_of))
    (cell,) = section.all("span", of="pod-labels")

    assert cell.text == f"name=train evil={hostile} team=nlp +1"
    assert cell.attributes["title"].startswith(f"app.kubernetes.io/name=train, evil={hostile}, ")
    assert not section.all("img")


def test_the_filter_finds_labels() -> None:
    pods_of = [PodRow(namespace="ml", name=name, uid="", labels=(("team", name * 3),)) for name in "ab"]
    node = snapshot([gpu()], [holder("a"), holder("b"), holder("c")], pods=tuple(pods_of))

    assert pods(asked("?q=label:team=aaa", node)) == ["a"]
    assert pods(asked("?q=-label:team", node)) == ["c"]
    assert pods(asked("?q=bbb", node)) == ["b"]
