"""The page of one GPU: its readings, its events with the affected pods, and its links."""

import re
from dataclasses import replace

import pytest

from exporter.model import (
    ContainerRef,
    DeviceEvent,
    DeviceKey,
    EventRow,
    PeerLink,
    Repairs,
    Topology,
    VgpuReading,
    VgpuRow,
)
from exporter.web.node.pages.gpu_page import write
from exporter.web.node.pages.scene import name_of
from tests.core.exposition.everything import MIG_READINGS, READINGS
from tests.page.web.views_reading import (
    NOW,
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
from tests.page.web.views_reading import draw as node

HOSTILE = '"><img src=x onerror=alert(1)>'


def draw(shown, uuid=UUID):
    """Return the parsed page of one GPU, three seconds after the poll."""
    return read(gpu_page(shown, uuid, now=shown.timestamp + 3) or "")


def said(page) -> dict[str, str]:
    """Return the readings by name."""
    lines = page.one("section", id="readings").all("div")
    return {
        line.one("dt").text: line.one("dd").text for line in lines if line.all("dt") and not line.all("div")
    }


def xid(code, mig_uuid="", *holders, at=NOW - 120) -> EventRow:
    """Return an XID of the first GPU, with the pods that held it."""
    event = DeviceEvent(at=at, uuid=UUID, kind="xid", mig_uuid=mig_uuid, xid=code)
    return EventRow(event=event, holders=tuple(ContainerRef("ml", pod, "main") for pod in holders))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_gpu_of_every_scenario_has_a_page(name) -> None:
    shown = scenario(name)
    for row in shown.gpus:
        page = draw(shown, row.identity.uuid)
        ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        assert page.one("h1").text.endswith(f" / {name_of(row)}")
        for element in page.all():
            assert element.tag not in {"style", "iframe", "object", "embed", "base"}
            assert element.tag != "script" or (element.attributes["src"] and not element.children)
            assert "style" not in element.attributes
            address = element.attributes.get("href") or ""
            assert address.startswith(("#", "?", "../", "GPU-")) or not address


def test_an_unknown_gpu_has_no_page() -> None:
    assert gpu_page(snapshot([gpu()]), "GPU-other") is None


def test_readings_are_grouped_and_in_readable_units() -> None:
    page = draw(snapshot([gpu(power_milliwatts=212_300, **READINGS)]))
    found = said(page)

    assert found["power"] == "212 W"
    assert found["memory used"] == "8.0 GiB"
    assert found["BAR1 used"] == "3 MiB"
    assert found["clock max: SM"] == "1980 MHz"
    assert found["ECC errors: uncorrected, aggregate"] == "4"
    assert found["violation: power"] == "1 s"
    assert found["temperature limit margin"] == "31 °C"
    assert "remapped rows: corrected" in found
    titles = [group.one("h3").text for group in page.one("section", id="readings").all("div", of="group")]
    assert "power and energy" in titles
    assert len(titles) == len(set(titles))


def test_skipped_readings_are_called_not_read() -> None:
    """Not those that have a value all the same, nor those of a lost GPU."""
    skipped = frozenset({"bar1", "fan_percent", "clocks_megahertz.video"})
    found = said(draw(snapshot([gpu(skipped=skipped, clocks_megahertz={"sm": 1980})])))

    assert [found[name] for name in ("BAR1 total", "BAR1 used", "fan")] == ["not read"] * 3
    assert found["clock: SM"] == "1980 MHz"
    assert "performance state" not in found
    lost = said(draw(snapshot([gpu(skipped=skipped, up=False)])))
    assert "not read" not in lost.values()


@pytest.mark.parametrize(
    ("family", "value", "text"),
    [
        ("gpuslice_gpu_pcie_transmit_bytes_per_second", 3 << 20, "3.0 MiB/s"),
        ("gpuslice_gpu_nvlink_speed_bytes_per_second", 25 << 30, "25.0 GiB/s"),
        ("gpuslice_gpu_memory_used_bytes", 5 << 30, "5.0 GiB"),
        ("gpuslice_gpu_pcie_transmit_bytes_total", 7 << 20, "7 MiB"),
        ("gpuslice_gpu_utilization_ratio", 0.375, "38 %"),
        ("gpuslice_gpu_energy_joules_total", 12_345.0, "12.3 kJ"),
        ("gpuslice_gpu_violation_seconds_total", 3_700.0, "1 h 1 min"),
        ("gpuslice_gpu_violation_seconds_total", 0.0, "0.0 ms"),
        ("gpuslice_gpu_encoder_frames_per_second", 59.94, "59.94"),
        ("gpuslice_gpu_pcie_replays_total", 1234567, "1 234 567"),
    ],
)
def test_numbers_are_written_in_the_unit_of_their_series(family, value, text) -> None:
    assert write(family, value) == text


def test_switches_and_state_sets_are_words() -> None:
    facts = {"persistence": True, "display_active": False, "recovery_action": "drain_p2p"}
    found = said(draw(snapshot([gpu(clock_events=0b101, **facts)])))

    assert (found["persistence mode"], found["display active"], found["up"]) == ("yes", "no", "yes")
    assert found["recovery action"] == "drain p2p"
    assert found["clock event active"] == "idle; power cap"
    assert said(draw(snapshot([gpu(clock_events=0)])))["clock event active"] == "none"
    assert "clock event active" not in said(draw(snapshot([gpu(clock_events=None)])))


def test_each_vgpu_of_a_host_has_its_readings() -> None:
    reading = VgpuReading(uuid="vgpu-a", type_name="NVIDIA A40-12Q", memory_used=3 << 30, licensed=False)
    rows = tuple(VgpuRow(uuid=uuid, reading=reading, holder=None) for uuid in (UUID, "GPU-1"))
    page = draw(snapshot([gpu(sharing="vgpu"), gpu(1)], vgpus=rows))
    (part,) = page.one("section", id="readings").all("details")[:1]

    assert part.one("summary").text == "vGPU A40-12Q vgpu-a"
    assert "memory used 3.0 GiB" in part.text
    assert "licensed no" in part.text
    assert page.text.count("vGPU A40-12Q") == 1


def test_the_page_of_an_amd_gpu_speaks_of_partitions_and_not_of_xids() -> None:
    row = gpu(sharing="amd-partition", mig_enabled=True, mig=None)
    row = replace(row, identity=replace(row.identity, vendor="amd"))
    page = draw(snapshot([row], migs=[mig("amdgpu_xcp_0", profile="cpx_nps1")]))

    assert "XID" not in page.one("section", id="events").text
    assert "partitioned, but the driver does not list its partitions" in page.text
    assert page.one("section", id="readings").all("summary")[0].text == "partition 1 cpx_nps1 amdgpu_xcp_0"


def test_missing_readings_have_a_reason() -> None:
    page = draw(snapshot([gpu(withheld={"ecc": "NoPermission"})]))
    (missing,) = page.one("section", id="readings").all("dl", of="missing")
    why = {line.one("dt").text: line.one("dd").text for line in missing.all("div")}

    assert why["ECC errors"].startswith("NoPermission (available: data-center GPUs")
    assert why["NVLink"].startswith("not available here (available: GPUs with NVLink")
    assert "memory" not in why


def test_a_gpu_that_does_not_answer_shows_its_problem_and_no_readings() -> None:
    page = draw(snapshot([gpu(up=False)], [holder("train-0")]))

    assert "does not answer" in page.text
    assert "train-0" in page.one("section", id="holders").text
    assert not page.all("dl", of="missing")
    assert not [name for name in said(page) if name.startswith(("memory", "power"))]


def test_mig_devices_have_their_readings() -> None:
    row = gpu(sharing="mig", mig_enabled=True, mig=(), mig_slices=7)
    page = draw(snapshot([row], migs=[mig("MIG-a", **MIG_READINGS)]))
    (part,) = [each for each in page.all("details") if "MIG-a" in each.one("summary").text]

    assert "engines: decoder" in part.text
    assert "mig utilization" not in part.text
    assert "44 %" in part.text


def test_events_name_the_code_what_to_do_and_who_was_hit() -> None:
    shown = snapshot(
        [gpu(sharing="mig", mig_enabled=True, mig=())],
        migs=[mig("MIG-a")],
        events=(xid(31, "MIG-a", "train-0", at=NOW - 7200), xid(79, "", "train-0", "nb-1")),
    )
    rows = draw(shown).one("section", id="events").one("tbody").all("tr")

    assert [re.sub(r" ago.*", "", row.text) for row in rows] == ["2 min", "2 h 0 min"]
    assert "XID 79" in rows[0].text
    assert "PCIe bus" in rows[0].text
    assert "train-0 , ml/ nb-1" in rows[0].text
    assert rows[0].all("svg", of="c-bad")
    assert "XID 31 2g.5gb" in rows[1].text


def test_an_event_of_another_gpu_is_not_shown() -> None:
    shown = snapshot([gpu(), gpu(1, watched=True)], events=(xid(79),))

    assert "XID 79" in draw(shown).text
    assert "None since this exporter started" in draw(shown, "GPU-1").text


def test_a_driver_that_reports_no_events_is_not_taken_for_a_healthy_one() -> None:
    assert "does not report events" in draw(snapshot([gpu(watched=False)])).text


def test_the_topology_is_the_matrix_that_nvidia_smi_shows() -> None:
    near = Topology(numa_node=0, cpus="0-31", peers={"GPU-1": PeerLink(pcie="NODE", nvlinks=4)})
    far = Topology(numa_node=1, cpus="32-63", peers={UUID: PeerLink(pcie="SYS", nvlinks=0)})
    page = draw(snapshot([gpu(topology=near), gpu(1, topology=far)]))
    rows = page.one("section", id="topology").one("tbody").all("tr")

    assert [[cell.text for cell in row.all("td")] for row in rows] == [
        ["X", "NV4", "0", "0-31"],
        ["SYS", "X", "1", "32-63"],
    ]
    assert "this" in rows[0].classes


def test_names_stay_text() -> None:
    row = gpu(model=HOSTILE, sharing="mig", mig_enabled=True, mig=())
    shown = snapshot(
        [row],
        [holder(HOSTILE, DeviceKey(UUID, "MIG-a"))],
        migs=[mig("MIG-a", profile=HOSTILE)],
        events=(xid(13, "MIG-a", HOSTILE),),
    )

    assert not draw(shown).all("img")


def test_the_page_of_the_node_has_the_faults_of_the_last_hour() -> None:
    shown = snapshot(
        [gpu(), gpu(1)],
        events=(
            xid(48, "", "old", at=NOW - 4000),
            xid(79, "", "train-0", at=NOW - 300),
            xid(31, "", "nb-1"),
            xid(79, "", "a", "b", "c", "d"),
            xid(162),
        ),
    )
    page = node(shown)
    rows = page.one("section", id="health").all("li")

    assert [row.text.split(".")[0] for row in rows[:2]] == [
        "XID 79 on GPU 0, 2 min ago",
        "XID 31 on GPU 0, 2 min ago",
    ]
    assert "Held by ml/a, ml/b, ml/c and ml/d at the time; all may be affected." in rows[0].text
    assert ["is-bad" in row.classes for row in rows[:2]] == [True, False]
    assert "XID 48" not in page.text
    assert "XID 162" not in page.text
    assert "1 fault" in page.one(of="cards").text


def test_the_pages_say_what_is_wrong_with_a_gpu() -> None:
    repairs = {"pending": Repairs(row_remap_pending=True), "failed": Repairs(row_remap_failure=True)}
    shown = snapshot(
        [
            gpu(recovery_action="drain_and_reset"),
            gpu(1, repairs=repairs["failed"]),
            gpu(2, repairs=repairs["pending"], recovery_action="none"),
            gpu(3, recovery_action="drain_p2p"),
        ]
    )
    rows = node(shown).one("section", id="health").all("li")

    assert [row.text.split(".")[0] for row in rows[:4]] == [
        "GPU 0 needs a reset",
        "GPU 1 cannot repair its memory",
        "GPU 2 needs a reset",
        "GPU 3 needs its peer-to-peer traffic drained",
    ]
    assert "A row remapping is pending. Drain it, open a release window and reset it." in rows[2].text
    assert "needs a reset, " in node(shown).all("div", of="about")[2].text
    (notice,) = draw(shown, "GPU-2").one("section", id="health").all("li")
    assert "A row remapping is pending." in notice.text
