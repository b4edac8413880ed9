"""Figures of the past: valid for Plotly, with sums that hold and gaps for the unknown."""

import json

import plotly.graph_objects as go
import pytest

from exporter.history import Past, Track
from exporter.web.node.timelines.figure_style import (
    COLOURS,
    shortest,
    shown_from,
    styles_by_hash,
    styles_by_place,
)
from exporter.web.node.timelines.figures import MOST_HOLDERS, holder_figures, node_figures

GIB = 1 << 30
COUNT = 4
START, STEP = 1_700_000_100.0, 30.0
UUID = "GPU-0"


def column(value) -> list[float | None]:
    """Return a value for all steps, or the list unchanged."""
    return value if isinstance(value, list) else [value] * COUNT


def container(pod, memory=None, compute=None, entitled=None, uuid=UUID, **labels) -> Track:
    """Return a container's track; a number is the value of all steps, memory is in GiB."""
    sizes = [
        [None if value is None else value * GIB for value in column(each)] for each in (memory, entitled)
    ]
    values = {
        "memory_used_bytes": sizes[0],
        "memory_entitled_bytes": sizes[1],
        "compute_used_ratio": column(compute),
        "compute_entitled_ratio": column(None),
    }
    identity = {"namespace": "ml", "pod": pod, "container": "main", "uuid": uuid, **labels}
    return Track(level="container", labels=identity, values=values)


def gpu(used=None, rest=None, uuid=UUID, total=40.0, **fields) -> Track:
    """Return a GPU's track; memory is in GiB."""
    sizes = [
        [None if value is None else value * GIB for value in column(each)] for each in (total, used, rest)
    ]
    names = ("memory_total_bytes", "memory_used_bytes", "unattributed_memory_bytes")
    others = ("utilization_ratio", "unattributed_utilization_ratio", "power_watts", "temperature_celsius")
    values = dict(zip(names, sizes, strict=True)) | {name: column(fields.get(name)) for name in others}
    return Track(level="gpu", labels={"uuid": uuid}, values=values)


def figures(*tracks, draw=node_figures) -> dict[str, dict]:
    """Return the figures of tracks by id, each checked by Plotly's own schema."""
    past = Past(start=START, step=STEP, count=COUNT, tracks=tracks)
    drawn = draw(past, {UUID: "GPU 0"})
    for each in drawn:
        go.Figure(each.figure)
        json.dumps(each.figure, allow_nan=False)
    return {each.id: each.figure | {"summary": each.summary} for each in drawn}


def traces(figure) -> dict[str, list]:
    """Return the values of traces by name."""
    return {trace["name"]: trace["y"] for trace in figure["data"]}


def test_the_stack_is_the_sum_of_what_is_used() -> None:
    pods = [container(f"pod-{number:02}", memory=float(number + 1)) for number in range(15)]
    figure = figures(*pods, gpu(used=122.0, rest=2.0))["memory"]
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    assert len(bars) == MOST_HOLDERS + 2
    assert traces(figure)["5 others"] == [15.0] * COUNT
    assert [sum(step) for step in zip(*(bar["y"] for bar in bars), strict=True)] == [122.0] * COUNT


def test_holders_are_ordered_by_name_not_by_size() -> None:
    before = figures(container("a", 1.0), container("b", 2.0))["memory"]
    after = figures(container("b", 1.0), container("a", 2.0))["memory"]
    assert list(traces(before)) == list(traces(after)) == ["a", "b"]


def test_a_container_on_two_devices_is_one_holder() -> None:
    figure = figures(container("a", 1.0), container("a", 2.0, uuid="GPU-1"))["memory"]
    assert traces(figure) == {"a": [3.0] * COUNT}


def test_unknown_values_are_gaps_and_hatched_but_never_zero() -> None:
    gap = [1.0, None, 1.0, 1.0]
    drawn = traces(
        figures(
            container("a", gap), gpu(used=gap, rest=[0.0, None, 0.0, 0.0], total=[40.0, None, 40.0, 40.0])
        )["memory"]
    )
    assert drawn["a"] == gap
    assert drawn["not known"] == [None, 1, None, None]
    assert drawn["on the devices"] == [40.0, None, 40.0, 40.0]
    assert "used, user unknown" not in drawn


def test_time_before_history_and_the_current_step_are_not_hatched() -> None:
    values = [None, None, 1.0, None]
    figure = figures(container("a", values), gpu(used=values, total=values))["memory"]
    assert "not known" not in traces(figure)


def test_a_lost_gpu_hatches_its_steps_and_leaves_no_total() -> None:
    lost = [5.0, None, 5.0, 5.0]
    other = gpu(used=lost, rest=[5.0, None, 5.0, 5.0], total=[40.0, None, 40.0, 40.0], uuid="GPU-1")
    figure = figures(container("a", 1.0), gpu(used=1.0, rest=0.0), other)["memory"]
    assert traces(figure)["not known"] == [None, 1, None, None]
    assert traces(figure)["unattributed"] == [5.0, 0.0, 5.0, 5.0]
    assert traces(figure)["on the devices"] == [80.0, None, 80.0, 80.0]


def test_use_without_a_known_user_is_shown_as_such() -> None:
    figure = figures(container("a", 1.0), container("b", None), gpu(used=5.0, rest=None))["memory"]
    assert traces(figure)["used, user unknown"] == [4.0] * COUNT
    assert "unattributed" not in traces(figure)
    assert "The memory of b is not known." in figure["summary"]


def test_use_beyond_holders_and_unattributed_is_shown() -> None:
    """Rounding errors are not."""
    figure = figures(container("a", 1.0), gpu(used=[5.0, 5.0, 5.0, 5.00001], rest=[2.0, 4.0, 1.0, 4.0]))
    assert traces(figure["memory"])["used, user unknown"] == [2.0, None, 3.0, None]


def test_entitlement_is_a_step_line_with_gaps() -> None:
    figure = figures(container("a", 1.0, entitled=[8.0, 8.0, None, 4.0]), container("b", 1.0, entitled=2.0))[
        "memory"
    ]
    line = next(trace for trace in figure["data"] if trace["name"] == "entitled")
    assert (line["y"], line["line"]["shape"], line["connectgaps"]) == ([10.0, 10.0, 2.0, 6.0], "hvh", False)
    assert figure["summary"].startswith("Now 2.0 GiB used of 6.0 GiB entitled.")


@pytest.mark.parametrize("lost", [[8.0, 8.0, None, None], None])
def test_a_silent_gpu_makes_the_caption_a_minimum(lost) -> None:
    """Not if only the current step is missing."""
    tracks = (container("a", 4.0), gpu(used=[4.0, 4.0, 4.0, None], rest=0.0))
    assert figures(*tracks)["memory"]["summary"].startswith("Now 4.0 GiB used of 40.0 GiB on the devices.")
    rest = [None if used is None else 0.0 for used in column(lost)]
    beside = (container("b", lost, uuid="GPU-1", entitled=2.0), gpu(used=lost, rest=rest, uuid="GPU-1"))
    assert figures(*tracks, *beside)["memory"]["summary"].startswith("Now at least 4.0 GiB used of ")


def test_a_silent_device_makes_the_caption_of_its_holder_a_minimum() -> None:
    """Not if the holder has left the device."""
    here, left = [1.0, 1.0, None, None], [2.0, None, None, None]
    known = container("a", 4.0, entitled=8.0)
    lost = container("a", here, entitled=2.0, uuid="GPU-1")
    gone = container("a", left, entitled=left, uuid="GPU-2")
    summaries = [
        figures(known, gone, draw=holder_figures)["memory"]["summary"],
        figures(known, gone, lost, draw=holder_figures)["memory"]["summary"],
    ]
    assert [each.partition(".0 GiB")[0] for each in summaries] == ["Now 4", "Now at least 4"]


def test_compute_is_measured_in_gpus() -> None:
    figure = figures(
        container("a", compute=0.25),
        gpu(used=1.0, utilization_ratio=0.5, unattributed_utilization_ratio=0.25),
    )["compute"]
    assert traces(figure) == {
        "a": [0.25] * COUNT,
        "unattributed": [0.25] * COUNT,
        "on the devices": [1.0] * COUNT,
    }
    assert figure["layout"]["yaxis"]["title"]["text"] == "GPUs"


def test_devices_have_a_panel_for_each_quantity() -> None:
    figure = figures(
        gpu(used=1.0, utilization_ratio=0.5, power_watts=200.0, temperature_celsius=[50.0, None, 52.0, 54.0])
    )["devices"]
    panels = [(trace["yaxis"], trace["y"], trace["showlegend"]) for trace in figure["data"]]
    assert panels == [
        ("y", [50.0] * COUNT, True),
        ("y2", [200.0] * COUNT, False),
        ("y3", [50.0, None, 52.0, 54.0], False),
    ]
    assert all(trace["connectgaps"] is False for trace in figure["data"])
    assert figure["summary"] == "Now, over 1 GPU: busy 50 %, power 200 W, temperature 54 °C."


def test_the_caption_counts_devices_with_current_readings() -> None:
    silent = [300.0, 300.0, None, None]
    summary = figures(gpu(power_watts=200.0), gpu(power_watts=silent, uuid="GPU-1"), gpu(uuid="GPU-2"))
    assert summary["devices"]["summary"] == "Now, over 1 of 3 GPUs: power 200 W."


def test_a_quantity_without_readings_has_no_panel() -> None:
    past = Past(start=START, step=STEP, count=COUNT, tracks=[gpu(power_watts=200.0)])
    devices = node_figures(past, {UUID: "GPU 0"})[-1]

    assert devices.title == "Devices: power"
    assert [trace["yaxis"] for trace in devices.figure["data"]] == ["y"]
    assert devices.figure["layout"]["yaxis"]["domain"] == [0.0, 1.0]
    assert devices.figure["layout"]["xaxis"]["anchor"] == "y"


def test_a_value_between_gaps_is_a_dot() -> None:
    figure = figures(gpu(used=1.0, power_watts=[1.0, 2.0, None, 3.0]))["devices"]
    (power,) = figure["data"]
    assert (power["mode"], power["marker"]["size"]) == ("lines+markers", [0, 0, 0, 5])


def test_a_holder_is_drawn_device_by_device() -> None:
    drawn = figures(container("a", 1.0, 0.5, entitled=8.0), draw=holder_figures)
    assert traces(drawn["memory"]) == {"GPU 0": [1.0] * COUNT, "entitled": [8.0] * COUNT}
    assert list(drawn) == ["memory", "compute"]


def test_hostile_names_stay_text() -> None:
    figure = figures(container('<a href="https://x.example">&lt;b\x1b\u202e', 1.0))["memory"]
    (name,) = traces(figure)
    assert name == 'ml/&lt;a href="https://x.example"&gt;&amp;lt;b\\x1b\\u202e main'
    assert "%{" not in figure["data"][0]["hovertemplate"].removeprefix("%{y:.2f}")


def test_nothing_moves_and_no_colour_of_the_page_is_claimed() -> None:
    figure = figures(container("a", 1.0), gpu(used=1.0))["memory"]
    assert not {"template", "font", "paper_bgcolor", "plot_bgcolor", "transition"} & figure["layout"].keys()
    assert figure["layout"]["xaxis"]["range"] == [START * 1000, (START + COUNT * STEP) * 1000]
    assert {(trace["x0"], trace["dx"]) for trace in figure["data"]} == {
        ((START + STEP / 2) * 1000, STEP * 1000)
    }


def test_an_empty_past_is_drawn_empty() -> None:
    drawn = figures()
    assert all(figure["data"] == [] for figure in drawn.values())
    assert drawn["devices"]["summary"] == "No current readings of the devices."


@pytest.mark.parametrize("card", ["#ffffff", "#161b22"])
@pytest.mark.parametrize("colour", COLOURS)
def test_colours_stand_out_in_light_and_dark(colour, card) -> None:
    """A contrast of 3, as WCAG asks of graphics."""
    lighter, darker = sorted((_luminance(colour), _luminance(card)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 3


def _luminance(colour) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colour_and_dash_belong_to_the_name_and_are_unique() -> None:
    names = [f"ml/pod-{number}" for number in range(20)]
    all_of_them = styles_by_hash(names)
    assert len(set(all_of_them.values())) == len(names)
    assert styles_by_hash(names[:1])[names[0]] == styles_by_hash([names[0]])[names[0]]
    alone = {name: styles_by_hash([name])[name] for name in names}
    assert sum(all_of_them[name] == alone[name] for name in names) >= len(names) / 2
    assert len({look.colour + look.dash for look in styles_by_place(names).values()}) == len(names)


def test_legends_have_the_shortest_unique_name_and_the_tooltip_all_of_it() -> None:
    figure = figures(container("a", 1.0), container("a", 1.0, namespace="dev"), container("b", 2.0))["memory"]
    by_name = {trace["name"]: trace for trace in figure["data"]}

    assert list(by_name) == ["dev/a main", "ml/a main", "b"]
    assert by_name["b"]["meta"] == "ml/b main"
    assert by_name["b"]["hovertemplate"].endswith("<extra>%{meta}</extra>")
    assert "b 2.0 GiB" in figure["summary"]


def test_long_names_lose_their_middle() -> None:
    """The end tells the pods of a job apart; names that would be equal stay whole."""
    long, alike = (f"ml/{'pretrain-' * 6}{end} main" for end in ("0000000001", "0000000002"))
    twins = [f"ml/{'pretrain-' * 2}{middle}{'-' * 30} main" for middle in "ab"]
    short = shortest([long, alike, *twins])

    assert short[long] == "pretrain-pretrain-p…0000000001"
    assert short[alike].endswith("…0000000002")
    assert [short[twin] for twin in twins] == [
        "pretrain-pretrain-a…----------",
        "pretrain-pretrain-b…----------",
    ]
    same = [f"ml/{'x' * 25}{middle}{'-' * 30} main" for middle in "ab"]
    assert shortest(same) == {name: name for name in same}


@pytest.mark.parametrize(
    ("first", "begins"), [(0, 0.0), (60, 1800.0), (115, 3300.0), (119, 3300.0), (None, 0.0)]
)
def test_a_young_history_fills_its_figure(first, begins) -> None:
    """The axis begins at the first poll, but has five minutes at least."""
    count, start = 120, 1_700_000_100.0 // 60 * 60
    known = [1.0 if first is not None and place >= first else None for place in range(count)]
    values = {"memory_used_bytes": known}
    track = Track(level="mig", labels={"uuid": UUID}, values=values)
    past = Past(start=start, step=STEP, count=count, tracks=[track])

    assert shown_from(past) == start + begins


def test_a_young_history_begins_at_a_whole_minute() -> None:
    track = Track(level="mig", labels={"uuid": UUID}, values={"power": [None, None, 1.0] + [1.0] * 117})
    past = Past(start=START, step=STEP, count=120, tracks=[track])

    assert START < shown_from(past) <= START + 2 * STEP
    assert shown_from(past) % 60 == 0
