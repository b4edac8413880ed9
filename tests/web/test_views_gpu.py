"""The page of one GPU: all its readings, its events with those whom they hit, and its links."""

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
from exporter.web.pages.gpu_page import write
from exporter.web.pages.scene import name_of
from tests.exposition.everything import MIG_READINGS, READINGS
from tests.web.views_reading import (
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
from tests.web.views_reading import draw as node

HOSTILE = '"><img src=x onerror=alert(1)>'


def draw(shown, uuid=UUID):
    """Draw and parse the page of one GPU, three seconds after the poll."""
    return read(gpu_page(shown, uuid, now=shown.timestamp + 3) or "")


def said(page) -> dict[str, str]:
    """Give the readings by their names."""
    lines = page.one("section", id="readings").all("div")
    return {
        line.one("dt").text: line.one("dd").text for line in lines if line.all("dt") and not line.all("div")
    }


def xid(code, mig_uuid="", *holders, at=NOW - 120) -> EventRow:
    """Make an XID of the first GPU, with the pods that held it."""
    event = DeviceEvent(at=at, uuid=UUID, kind="xid", mig_uuid=mig_uuid, xid=code)
    return EventRow(event=event, holders=tuple(ContainerRef("ml", pod, "main") for pod in holders))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_gpu_of_every_scenario_has_a_page(name) -> None:
    """Elements nest, ids are unique, links are relative, and its policy blocks nothing in the page."""
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


def test_a_gpu_that_is_not_there_has_no_page() -> None:
    """A name that nobody has leads nowhere."""
    assert gpu_page(snapshot([gpu()]), "GPU-other") is None


def test_readings_stand_under_their_group_in_the_units_of_people() -> None:
    """What the driver says is shown whole, with units that are read without counting zeros."""
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


def test_what_no_series_needs_is_said_not_to_be_read() -> None:
    """It is no absent part of the GPU; a series that has values all the same tells them."""
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
def test_numbers_are_written_by_what_their_names_end_in(family, value, text) -> None:
    """The unit of a series decides how its number is written."""
    assert write(family, value) == text


def test_what_is_yes_or_no_or_one_of_several_is_said_in_words() -> None:
    """A switch is no number, and of a set of states those that do not hold are no news."""
    facts = {"persistence": True, "display_active": False, "recovery_action": "drain_p2p"}
    found = said(draw(snapshot([gpu(clock_events=0b101, **facts)])))

    assert (found["persistence mode"], found["display active"], found["up"]) == ("yes", "no", "yes")
    assert found["recovery action"] == "drain p2p"
    assert found["clock event active"] == "idle; power cap"
    assert said(draw(snapshot([gpu(clock_events=0)])))["clock event active"] == "none"
    assert "clock event active" not in said(draw(snapshot([gpu(clock_events=None)])))


def test_each_vgpu_of_a_host_has_its_readings() -> None:
    """Its type and id name it; those of other GPUs stand on their own pages."""
    reading = VgpuReading(uuid="vgpu-a", type_name="NVIDIA A40-12Q", memory_used=3 << 30, licensed=False)
    rows = tuple(VgpuRow(uuid=uuid, reading=reading, holder=None) for uuid in (UUID, "GPU-1"))
    page = draw(snapshot([gpu(sharing="vgpu"), gpu(1)], vgpus=rows))
    (part,) = page.one("section", id="readings").all("details")[:1]

    assert part.one("summary").text == "vGPU A40-12Q vgpu-a"
    assert "memory used 3.0 GiB" in part.text
    assert "licensed no" in part.text
    assert page.text.count("vGPU A40-12Q") == 1


def test_the_page_of_an_amd_gpu_speaks_of_partitions_and_not_of_xids() -> None:
    """MIG, XID errors and the instances of MIG are NVIDIA's."""
    row = gpu(sharing="amd-partition", mig_enabled=True, mig=None)
    row = replace(row, identity=replace(row.identity, vendor="amd"))
    page = draw(snapshot([row], migs=[mig("amdgpu_xcp_0", profile="cpx_nps1")]))

    assert "XID" not in page.one("section", id="events").text
    assert "partitioned, but the driver does not list its partitions" in page.text
    assert page.one("section", id="readings").all("summary")[0].text == "partition 1 cpx_nps1 amdgpu_xcp_0"


def test_what_a_gpu_does_not_give_tells_why() -> None:
    """A group without a reading names the reason, and the GPUs that have it."""
    page = draw(snapshot([gpu(withheld={"ecc": "NoPermission"})]))
    (missing,) = page.one("section", id="readings").all("dl", of="missing")
    why = {line.one("dt").text: line.one("dd").text for line in missing.all("div")}

    assert why["ECC errors"].startswith("NoPermission (available: data-center GPUs")
    assert why["NVLink"].startswith("not available here (available: GPUs with NVLink")
    assert "memory" not in why


def test_a_gpu_that_does_not_answer_shows_its_problem_and_no_readings() -> None:
    """Of a lost GPU only its name is left, and who held it."""
    page = draw(snapshot([gpu(up=False)], [holder("train-0")]))

    assert "does not answer" in page.text
    assert "train-0" in page.one("section", id="holders").text
    assert not page.all("dl", of="missing")
    assert not [name for name in said(page) if name.startswith(("memory", "power"))]


def test_mig_devices_tell_their_readings_too() -> None:
    """Each MIG device has its own part, with what only it says."""
    row = gpu(sharing="mig", mig_enabled=True, mig=(), mig_slices=7)
    page = draw(snapshot([row], migs=[mig("MIG-a", **MIG_READINGS)]))
    (part,) = [each for each in page.all("details") if "MIG-a" in each.one("summary").text]

    assert "engines: decoder" in part.text
    assert "mig utilization" not in part.text
    assert "44 %" in part.text


def test_events_name_the_code_what_to_do_and_who_was_hit() -> None:
    """The newest stands first, with meaning, first action, device and the holders of that moment."""
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
    """Each page has the events of its own GPU."""
    shown = snapshot([gpu(), gpu(1, watched=True)], events=(xid(79),))

    assert "XID 79" in draw(shown).text
    assert "None since this exporter started" in draw(shown, "GPU-1").text


def test_a_driver_that_reports_no_events_is_not_taken_for_a_healthy_one() -> None:
    """Where nobody waits for events the page says so, in place of claiming that there were none."""
    assert "does not report events" in draw(snapshot([gpu(watched=False)])).text


def test_the_topology_is_the_matrix_that_nvidia_smi_shows() -> None:
    """NVLinks by number where there are any, else the way over PCIe, and a dash where nothing is told."""
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
    """Whatever a model, a profile or a pod is called, nothing of it becomes an element."""
    row = gpu(model=HOSTILE, sharing="mig", mig_enabled=True, mig=())
    shown = snapshot(
        [row],
        [holder(HOSTILE, DeviceKey(UUID, "MIG-a"))],
        migs=[mig("MIG-a", profile=HOSTILE)],
        events=(xid(13, "MIG-a", HOSTILE),),
    )

    assert not draw(shown).all("img")


def test_the_page_of_the_node_tells_the_faults_of_the_last_hour() -> None:
    """The newest of each sort stands among the notices with its holders; tenants' own faults are notes."""
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
    """The node's page of each GPU, and the page of a GPU of its own, with cause and remedy."""
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
