"""docs/troubleshooting.md holds what it says: every code of the doctor is there, and each name exists."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.reference_pages import settings_page
from alerts.thresholds import load_thresholds
from exporter.doctor import DOCUMENTATION, TROUBLESHOOTING
from tests.commands.doctor_bench import FINDINGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
SYMPTOMS, CODES = PAGE.split("\n## Codes of the doctor\n")
SECTION = re.compile(r"^### (\S+)\n\n(\w+): ", re.MULTILINE)
# What is said in the doctor's own table, so that a pod's user need not open this page to be helped.
SAID = PAGE + "".join(f"\n{finding.remedy}" for finding in FINDINGS.values())
SERIES = re.compile(r"\bgpuslice_[a-z_]+\b")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
# Options of other programs that the page names.
OTHERS = {"create-all", "show-labels", "previous", "since", "gpu-reset", "as", "build-arg", "scenario"}
PLACE = re.compile(r"\b(?:deploy/)?((?:components|overlays)/[a-z0-9-]+)")
VALUE = re.compile(
    r"`((?:hostPID|runtimeClassName|privileged|kubeletRoot|driverRoot|podsApi|kubernetesApi|migMonitor|amd|sharing)"
    r"(?:\.\w+)*)"
)


def test_every_code_has_a_section() -> None:
    """Each finding is explained once, under its code, with the word that its line has; nothing else is."""
    sections = SECTION.findall(CODES)
    assert dict(sections) == {code: finding.status for code, finding in FINDINGS.items()}
    assert len(sections) == len(FINDINGS) == CODES.count("\n### ")


def anchors(text: str) -> list[str]:
    """Give the anchors that the headings of a page have."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_the_address_that_the_doctor_prints_is_this_page() -> None:
    """It is below the repository that the runbooks of the alerts are in, and a heading is its own anchor."""
    base = load_thresholds().rules.runbook_url.partition("/alerts/")[0]
    assert f"{base}/docs" == DOCUMENTATION
    assert (ROOT / TROUBLESHOOTING.removeprefix(f"{base}/")).read_text() == PAGE
    assert FINDINGS.keys() <= set(anchors(PAGE))


def test_headings_can_be_linked_to() -> None:
    """No two have the same anchor."""
    found = anchors(PAGE)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", PAGE))))
def test_links_lead_to_headings(link: str) -> None:
    """A link with an anchor is to a heading that exists."""
    page, _, anchor = link.partition("#")
    text = (ROOT / "docs" / page).read_text() if page else PAGE
    assert anchor in anchors(text)


def test_series_exist() -> None:
    """Each is in the reference."""
    assert set(SERIES.findall(SAID)) <= set(SERIES.findall((ROOT / "docs/metrics.md").read_text()))


def test_options_exist() -> None:
    """Each is one of the exporter's, or of a program that the page names."""
    ours = set(OPTION.findall(settings_page()))
    assert set(OPTION.findall(SAID)) - OTHERS <= ours


def test_places_in_deploy_exist() -> None:
    """Each component and overlay is there, under the name that the page and the doctor have for it."""
    named = set(PLACE.findall(SAID))
    assert named
    assert {name for name in named if not (ROOT / "deploy" / name / "kustomization.yaml").exists()} == set()


@cache
def chart() -> dict[str, Any]:
    """Read the values of the chart."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy/charts/gpuslice-exporter/values.yaml").read_text())
    return found


@pytest.mark.parametrize("path", sorted(set(VALUE.findall(PAGE))))
def test_values_of_the_chart_exist(path: str) -> None:
    """Each is in the chart's values by that path."""
    at: Any = chart()
    for part in path.split("."):
        assert part in at
        at = at[part]
