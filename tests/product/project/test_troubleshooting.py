"""docs/troubleshooting.md has every code of the doctor, and each name on it exists."""

import re
from typing import Any

import yaml

from alerts.reference_pages import settings_page
from alerts.thresholds import load_thresholds
from exporter.doctor import DOCUMENTATION, TROUBLESHOOTING
from tests.core.commands.doctor_bench import FINDINGS as OF_NODES
from tests.core.commands.doctor_bench import FINDINGS_OF_RULES
from tests.tools import ROOT

FINDINGS = OF_NODES | FINDINGS_OF_RULES
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
SYMPTOMS, CODES = PAGE.split("\n## Codes of the doctor\n")
SECTION = re.compile(r"^### (\S+)\n\n(\w+): ", re.MULTILINE)
# With the remedies that the doctor prints.
TEXTS = PAGE + "".join(f"\n{finding.remedy}" for finding in FINDINGS.values())
SERIES = re.compile(r"\bgpuslice_[a-z_]+\b")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
# Options of other programs that the page names.
OTHERS = {
    "server-side",
    "create-all",
    "show-labels",
    "previous",
    "since",
    "gpu-reset",
    "as",
    "build-arg",
    "scenario",
    # Of nvidia-smi memory-limits, and of vLLM.
    "set",
    "soft-limit",
    "hard-limit",
    "gpu-memory-utilization",
}
PLACE = re.compile(r"\b(?:deploy/)?((?:components|overlays)/[a-z0-9-]+)")
VALUE = re.compile(
    r"`((?:hostPID|runtimeClassName|privileged|kubeletRoot|driverRoot|podsApi|kubernetesApi|migMonitor|amd|sharing)"
    r"(?:\.\w+)*)"
)


def test_every_code_has_a_section() -> None:
    """One for each finding, with its status, and no other."""
    sections = SECTION.findall(CODES)
    assert dict(sections) == {code: finding.status for code, finding in FINDINGS.items()}
    assert len(sections) == len(FINDINGS) == CODES.count("\n### ")


def anchors(text: str) -> list[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_the_address_that_the_doctor_prints_is_this_page() -> None:
    """In the repository of the alerts' runbooks; each code is an anchor."""
    base = load_thresholds().rules.runbook_url.partition("/alerts/")[0]
    assert f"{base}/docs" == DOCUMENTATION
    assert (ROOT / TROUBLESHOOTING.removeprefix(f"{base}/")).read_text() == PAGE
    assert FINDINGS.keys() <= set(anchors(PAGE))


def test_no_two_headings_have_the_same_anchor() -> None:
    assert len(set(anchors(PAGE))) == len(anchors(PAGE))


def test_links_name_headings_that_exist() -> None:
    links = sorted(set(re.findall(r"\]\(([^)\s]*)#([^)\s]+)\)", PAGE)))
    texts = {page: (ROOT / "docs" / page).read_text() if page else PAGE for page, _ in links}

    assert links
    assert [(page, anchor) for page, anchor in links if anchor not in anchors(texts[page])] == []


def test_series_exist() -> None:
    assert set(SERIES.findall(TEXTS)) <= set(SERIES.findall((ROOT / "docs/metrics.md").read_text()))


def test_options_exist() -> None:
    """The exporter or another program has each."""
    ours = set(OPTION.findall(settings_page()))
    assert set(OPTION.findall(TEXTS)) - OTHERS <= ours


def test_places_in_deploy_exist() -> None:
    """Each component and overlay."""
    named = set(PLACE.findall(TEXTS))
    assert named
    assert {name for name in named if not (ROOT / "deploy" / name / "kustomization.yaml").exists()} == set()


def test_values_of_the_chart_exist() -> None:
    """By their paths."""
    values = yaml.safe_load((ROOT / "deploy/charts/gpuslice-exporter/values.yaml").read_text())
    for path in set(VALUE.findall(PAGE)):
        place: Any = values
        for part in path.split("."):
            assert part in place, path
            place = place[part]
