"""The doctor's page and its JSON: missing and degraded first, what is lost, and how to fix it."""

import json
import re
from dataclasses import replace

import pytest

from exporter.demo.scenario.catalog import load
from exporter.doctor import TROUBLESHOOTING, Check, Report
from exporter.doctor.checks import Doctor
from exporter.web.kit.html import page
from exporter.web.node.pages.doctor_page import doctor_view, typed
from exporter.web.node.pages.layout import doctor_drawing
from exporter.web.node.pages.scene import Scene
from tests.page.web.views_reading import NOW, read, scenario
from tests.together.end_to_end.serving import serving

MISSING = Check("driver", "missing", "no answer", "everything", "set hostPID: true", "driver-fails")
DEGRADED = Check(
    "pod names", "degraded", "by name", "which container", "mount /var/log/pods", "pod-names-of-others"
)
WELL = Check("GPU 0", "OK", "Tesla T4")
ABSENT = Check("NVLink", "absent", "GPUs with NVLink", code="readings-not-here")


def _scene(*checks: Check) -> Scene:
    return Scene(scenario("old-driver"), now=NOW, report=lambda: Report("node", checks))


def drawn(*checks):
    """Return the parsed page of these checks."""
    drawing = doctor_drawing(_scene(*checks))
    return read(page(drawing, ""))


@pytest.mark.parametrize(
    ("checks", "title"),
    [
        ((WELL, ABSENT), "All sources can be read"),
        ((DEGRADED, WELL), "One thing is degraded: pod names."),
        ((WELL, DEGRADED, MISSING), "One thing is missing: driver. One thing is degraded: pod names."),
        ((DEGRADED, replace(DEGRADED, name="names")), "Two things are degraded: pod names and names."),
        (
            tuple(replace(MISSING, name=f"GPU {number}") for number in range(14)),
            "14 things are missing: GPU 0, GPU 1, GPU 2 and 11 more.",
        ),
        ((), "The first poll is running"),
    ],
)
def test_the_summary(checks, title):
    assert drawn(*checks).one(id="summary").one("h2").text == title


def test_problems_come_first():
    """Missing before degraded, each in the order of the report."""
    shown = drawn(WELL, DEGRADED, ABSENT, MISSING, replace(DEGRADED, name="names"))
    ailments = shown.one(id="fix").all("article")
    assert [each.one("h3").text for each in ailments] == [
        "driver missing",
        "pod names degraded",
        "names degraded",
    ]
    assert [each.one("use").attributes["href"] for each in ailments][:2] == ["#i-missing", "#i-degraded"]
    assert [each.text for each in ailments[0].all("dd")] == [
        "no answer",
        "everything",
        "set hostPID: true",
        "driver-fails",
    ]
    assert shown.one(id="well").one("li").text == "GPU 0 Tesla T4"
    assert shown.one(id="lacking").tag == "details"
    assert shown.one(id="lacking-list").one("li").text == "NVLink GPUs with NVLink readings-not-here"


def test_a_cause_leads_to_its_documentation():
    shown = drawn(WELL, MISSING, ABSENT)
    links = {link.text: link.attributes["href"] for link in shown.all("a", of="more")}
    assert links == {check.code: f"{TROUBLESHOOTING}#{check.code}" for check in (MISSING, ABSENT)}


def test_empty_lists_are_hidden():
    """They stay in the document for live updates."""
    drawing = doctor_drawing(_scene(WELL))
    hidden = {name for name, html in drawing.pieces.items() if " hidden" in html.partition(">")[0]}
    assert hidden == {"fix", "lacking-name", "lacking-list"}
    assert all(f'id="{name}"' in html.partition(">")[0] for name, html in drawing.pieces.items())


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("set hostPID: true, or --proc-root to the host's /proc", ["hostPID: true", "--proc-root", "/proc"]),
        ("mount /var/log/pods, or the directory of /a/b.sock", ["/var/log/pods", "/a/b.sock"]),
        (
            "deploy/components/amd, or NVIDIA_VISIBLE_DEVICES=all)",
            ["deploy/components/amd", "NVIDIA_VISIBLE_DEVICES=all"],
        ),
        ("or set --kubernetes-api off", ["--kubernetes-api off"]),
        ("see docs/deploy.md: the objects", ["docs/deploy.md"]),
        ("counted in gpuslice_nvml_errors_total", ["gpuslice_nvml_errors_total"]),
        ("one that has it: gpuslice-exporter demo", ["gpuslice-exporter demo"]),
        ("(/sys/module/nvidia/version is not there)", ["/sys/module/nvidia/version"]),
        ("GPU 0 answers 2/3 of XID 31 on PCIe; a kubelet from 1.23 on", []),
    ],
)
def test_commands_flags_and_paths_are_marked(text, marked):
    html = typed(text)
    assert re.findall("<code>(.*?)</code>", html) == marked
    assert html.striptags() == " ".join(text.split())


def test_names_from_outside_stay_text():
    hostile = "<script>alert(1)</script>\u202e/x/<b>"
    drawing = doctor_drawing(_scene(replace(MISSING, found=hostile, name=hostile)))
    html = page(drawing, "")
    assert "<script>alert" not in html
    assert "<b>" not in html
    assert "\u202e" not in html


def test_all_checks_of_a_report_are_on_the_page():
    view = doctor_view(Report("node", (WELL, ABSENT, MISSING, DEGRADED)))
    shown = [one.check.name for one in (*view.ailing, *view.well, *view.lacking)]
    assert sorted(shown) == sorted(check.name for check in (WELL, ABSENT, MISSING, DEGRADED))


async def test_page_and_json_over_http():
    async with serving(load("gke")) as node:
        async with node.client.get(f"{node.url}/doctor") as answer:
            assert (answer.status, "The first poll is running" in await answer.text()) == (200, True)
        async with node.client.get(f"{node.url}/api/v1/doctor") as answer:
            assert answer.status == 503
        await node.poll(0)
        async with node.client.get(f"{node.url}/doctor") as answer:
            text = await answer.text()
        assert "Two things are missing: processes and pod names." in text
        assert 'href="./"' in text
        async with node.client.get(f"{node.url}/api/v1/doctor") as answer:
            report = json.loads(await answer.read())
            assert answer.content_type == "application/json"
        unwell = {check["name"] for check in report["checks"] if check["status"] == "missing"}
        assert (report["exit_code"], unwell) == (3, {"processes", "pod names"})


async def test_a_report_is_of_the_last_poll_and_reads_nothing():
    async with serving(load("no-gpu")) as node:
        doctor = Doctor(lambda: node.poller.evidence, node.poller.settings)
        node.poller.subscribe(doctor.record)
        await node.poll(0)
        version = node.poller.settings.sys_root / "module/nvidia/version"
        version.parent.mkdir(parents=True)
        version.touch()
        assert "no kernel module" in doctor.report().checks[0].found
        await node.poll(5)
        assert "the kernel module is loaded" in doctor.report().checks[0].found


async def test_a_report_is_made_once_per_poll():
    async with serving(load("a10-mps")) as node:
        doctor = Doctor(lambda: node.poller.evidence, node.poller.settings)
        assert doctor.report().checks == ()
        node.poller.subscribe(doctor.record)
        await node.poll(0)
        first = [doctor.report() for _ in range(10)]
        await node.poll(5)
        assert len({id(report) for report in first}) == 1
        assert doctor.report() is not first[0]
        assert doctor.report().checks[0] == first[0].checks[0]
