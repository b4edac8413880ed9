"""What single panels claim, where exporters are replaced, names are lost and half is not known."""

from pathlib import Path

import pytest

from tests.dashboards.promtool import Asked, answered, during, node, query, said, series

A, B = "GPU-a", "GPU-b"
TRAINER = 'namespace="ml", pod="ddp", container="trainer"'
ON_NODE = f'node="n1", {TRAINER}'
GPU_A = 'node="n1", gpu="0", uuid="GPU-a"'
Known = dict[str, tuple[float | None, float | None]]
"""What of each GPU is held and what is used, as far as it is known."""


def held(name: str, uuid: str, who: str = TRAINER) -> str:
    """Write a series of a container on a device."""
    return series(f"container_{name}", f'uuid="{uuid}", {who}')


@pytest.mark.parametrize(
    ("panel", "quantity"),
    [
        ("Memory used by held", ("memory_entitled_bytes", "memory_used_bytes")),
        ("Compute used by held", ("compute_entitled_ratio", "compute_used_ratio")),
    ],
)
@pytest.mark.parametrize(
    ("known", "ratio"),
    [
        pytest.param({A: (0.25, 0.23), B: (0.25, None)}, 0.92, id="use of one is not measured"),
        pytest.param({A: (0.5, 0.4), B: (None, 0.4)}, 0.8, id="nothing is held of one"),
    ],
)
def test_used_of_held_is_of_devices_of_which_both_are_known(
    tmp_path: Path, panel: str, quantity: tuple[str, str], known: Known, ratio: float
) -> None:
    """What is not known of one device makes the use of another neither smaller nor larger."""
    told = {
        held(name, uuid): f"{value}x60"
        for uuid, values in known.items()
        for name, value in zip(quantity, values, strict=True)
        if value is not None
    }

    answered(tmp_path, node(60, A, B) | told, Asked(query("node", panel), 30, {ON_NODE: ratio}))


RESTARTED = node(400, A) | {
    series("gpu_events_watched", f'uuid="{A}"'): "1x400",
    held("slices", A): "1x400",
    # The error was at one hour; the exporter is started anew after an hour and a half.
    series("gpu_xid_last_timestamp_seconds", f'uuid="{A}", xid="79"'): during("3600", 60, 90),
}
REPLACED = (
    node(90, A)
    | node(400, A, instance="i2", since=91)
    | {
        series("gpu_events_watched", f'uuid="{A}"', "i2"): "1x400",
        series("container_slices", f'uuid="{A}", {TRAINER}', "i2"): "1x400",
        series("gpu_xid_last_timestamp_seconds", f'uuid="{A}", xid="79"'): during("3600", 60, 90),
    }
)


@pytest.mark.parametrize("told", [RESTARTED, REPLACED], ids=["restarted", "another target"])
def test_an_xid_outlives_the_exporter_that_told_it(tmp_path: Path, told: dict[str, str]) -> None:
    """An error in the time shown is no "none" because the exporter that saw it is gone."""
    codes, ours, sick = (
        query(*each)
        for each in (
            ("hardware", "XID codes"),
            ("tenant", "XID errors on our GPUs"),
            ("fleet", "Unhealthy GPUs"),
        )
    )
    answered(
        tmp_path,
        told,
        Asked(codes, 85, {"": 1}),
        Asked(codes, 150, {"": 1}),
        Asked(ours, 150, {f'{GPU_A}, xid="79"': 3_600_000}),
        Asked(sick, 85, {"": 1}),
        Asked(sick, 115, {"": 1}),
        Asked(sick, 125, {"": 0}),
        Asked(
            query("fleet", "Unhealthy GPUs, by reason"),
            115,
            {f'{GPU_A}, model="L4", reason="XID 79 in the last hour"': 1},
        ),
    )


def test_energy_is_that_of_all_exporters_of_the_time(tmp_path: Path) -> None:
    """What the exporter's former pod counted is part of the sum, as it is on the page of tenants."""
    told = node(120, A) | node(360, A, instance="i2", since=121)
    for instance, since, until in (("i1", 0, 120), ("i2", 121, 360)):
        name = series("container_energy_joules_total", f'uuid="{A}", {TRAINER}', instance)
        told[name] = during("0+6000", since, until)
    energy = query("node", "Energy in the chosen time", hours=5)
    # 300 minutes, less the one between the two pods of which half is seen.
    answered(tmp_path, told, Asked(f"round({energy}, 1000)", 300, {ON_NODE: 1_797_000}))


def test_energy_is_not_counted_twice_where_two_jobs_scrape_it(tmp_path: Path) -> None:
    """Two jobs that scrape one exporter tell of the same energy."""
    counted = held("energy_joules_total", A)
    told = node(90, A) | {counted: "0+6000x90"}
    told |= {name.replace('job="j"', 'job="k"'): values for name, values in told.items()}

    answered(
        tmp_path, told, Asked(query("node", "Energy in the chosen time", hours=1), 60, {ON_NODE: 360_000})
    )


def test_energy_of_an_address_that_two_nodes_had_is_not_given_to_one(tmp_path: Path) -> None:
    """What a node told at an address that is another's by now is unknown, and not the other's."""
    told = (
        node(60, A)
        | node(300, B, since=62, name="n2")
        | {
            held("energy_joules_total", A): during("0+6000", 0, 60),
            held("energy_joules_total", B): during("0+60", 62, 300),
        }
    )
    rows = f"group by (node) ({query('node', 'Energy in the chosen time')})"

    answered(tmp_path, told, Asked(rows, 200, {'node="n2"': 1}))


def test_a_source_that_was_never_read_is_listed(tmp_path: Path) -> None:
    """A source that fails since its exporter was started is silent, since when is unknown."""
    told = node(200, A) | {
        series("collector_success", 'collector="podresources"'): "0x200",
        series("collector_success", 'collector="cgroups"'): "1x10 0x200",
        series("collector_last_success_timestamp_seconds", 'collector="cgroups"'): "0+60x10 600x200",
        series("snapshot_timestamp_seconds", "").replace(", }", "}"): "0+60x200",
    }
    target = 'job="j", instance="i1", node="n1"'
    never, once = (f'{target}, state="cannot read {source}"' for source in ("podresources", "cgroups"))
    listed, since = (query("fleet", "Failing exporters", number=number) for number in (0, 1))

    answered(
        tmp_path,
        told,
        Asked(f"({listed}) * 0", 60, {never: 0, once: 0}),
        Asked(since, 60, {once: 3000}),
    )


def test_a_new_code_is_drawn_by_all_its_errors(tmp_path: Path) -> None:
    """The first errors of a code are drawn once, however often they were scraped since."""
    told = node(200, A, B) | {
        series("gpu_xid_code_errors_total", f'uuid="{A}", xid="31"'): "_x10 3x40 4x100",
        series("gpu_events_watched", f'uuid="{A}"'): "1x200",
        series("gpu_events_watched", f'uuid="{B}"'): "0x200",
    }
    errors = query("hardware", "XID errors over time")
    code, none = (f'{GPU_A}, xid="{code}"' for code in ("31", "none"))

    answered(
        tmp_path,
        told,
        Asked(errors, 9, {none: 0}),
        Asked(errors, 10, {code: 3}),
        Asked(errors, 11, {code: 3}),
        Asked(errors, 12, {none: 0}),
    )


def mig(device: str, holders: int | None) -> dict[str, str]:
    """Tell of a MIG device, and how many hold it where that is known."""
    on = f'uuid="{A}", mig_uuid="{device}"'
    told = {
        series("mig_info", f'{on}, gi="1", ci="0", profile="3g.20gb"'): "1x60",
        series("mig_memory_total_bytes", on): "100x60",
    }
    return told if holders is None else told | {series("mig_holders", on): f"{holders}x60"}


def test_a_mig_device_that_others_hold_is_not_free(tmp_path: Path) -> None:
    """With a namespace chosen, devices of others are left out; one whose holders are unknown is unknown."""
    on = f'uuid="{A}", mig_uuid="MIG-1", namespace="team-b", pod="p", container="c"'
    told = node(60, A) | mig("MIG-1", 1) | mig("MIG-2", 0) | mig("MIG-3", None)
    told[series("container_slices", on)] = "1x60"
    first, free, unknown = (
        f'{GPU_A}, mig_uuid="MIG-{number}", gi="1", ci="0", profile="3g.20gb"' for number in (1, 2, 3)
    )
    first += ', namespace="team-b", pod="p", container="c"'
    slices, memory = 1, 3

    def devices(number: int, namespace: str) -> str:
        return query("node", "Devices", number=number, namespace=namespace)

    answered(
        tmp_path,
        told,
        Asked(devices(slices, "team-a"), 30, {free: 0}),
        Asked(devices(slices, "team-b"), 30, {first: 1, free: 0}),
        Asked(devices(memory, "team-a"), 30, {free: 100, unknown: 100}),
        Asked(devices(memory, "team-b"), 30, {first: 100, free: 100, unknown: 100}),
    )


def test_an_address_of_another_node_by_now_does_not_answer_for_the_first(tmp_path: Path) -> None:
    """Who asks for the first node sees a gap, and who asks for both sees the second."""
    told = node(60, A) | node(300, B, since=62, name="n2")
    # What scrapes it outlives the node: it is the address that is asked.
    told['up{job="j", instance="i1"}'] = "1x300"

    answered(
        tmp_path,
        told,
        Asked(query("node", "Nodes and GPUs that answer", node="n1"), 30, {'node="n1"': 1}),
        Asked(query("node", "Nodes and GPUs that answer", node="n1"), 120, {}),
        Asked(query("node", "Nodes and GPUs that answer"), 120, {'node="n2"': 1}),
    )


def test_a_node_that_is_silent_does_not_answer(tmp_path: Path) -> None:
    """A node whose exporter cannot be scraped any more is known by what it said before."""
    told = node(60, A) | {'up{job="j", instance="i1"}': "1x60 0x200"}

    answered(
        tmp_path, told, Asked(query("node", "Nodes and GPUs that answer", node="n1"), 120, {'node="n1"': 0})
    )


def test_gpus_that_were_lost_before_they_had_a_name_are_sick(tmp_path: Path) -> None:
    """The fleet counts and lists them as the page of their node does, unless the driver is given up."""
    target = 'job="j", instance="i1"'
    told = node(60, A) | {
        f"gpuslice_node_gpus{{{target}}}": "3x60",
        f"gpuslice_driver_released{{{target}}}": "0x30 1x30",
    }
    sick, listed = query("fleet", "Unhealthy GPUs"), query("fleet", "Unhealthy GPUs, by reason")
    row = 'node="n1", reason="lost before it had a name"'

    answered(
        tmp_path,
        told,
        Asked(sick, 20, {"": 2}),
        Asked(listed, 20, {row: 2}),
        Asked(sick, 50, {"": 0}),
        Asked(said("fleet", "Unhealthy GPUs, by reason", "reason"), 50, {'reason="none"': 1}),
    )
