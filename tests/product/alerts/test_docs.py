"""docs/alerts.md."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from alerts.docs import alerts_markdown, said
from alerts.grouping import alert_groups
from alerts.thresholds import load_thresholds
from tests.tools import tool

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/alerts.md"


def example(language: str) -> str:
    """Return the first example of a language on the page, without its indentation."""
    block = re.search(rf"^( *)```{language}\n(.*?)^ *```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    return re.sub(rf"^{block[1]}", "", block[2], flags=re.MULTILINE)


def test_the_page_is_what_the_code_makes() -> None:
    """After a change of an alert, run `make docs`."""
    assert PAGE.read_text() == alerts_markdown(load_thresholds())


def test_every_alert_has_a_row_with_a_link_to_its_runbook() -> None:
    links = re.findall(r"^\| \[\w+\]\(\.\./alerts/runbooks/(\w+)\.md\) ", PAGE.read_text(), re.MULTILINE)
    assert links == [rule.full_name for group in alert_groups(load_thresholds()) for rule in group.rules]


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ("GPU {{ or $labels.gpu $labels.uuid }} is lost", "GPU *gpu* is lost"),
        (
            "{{ $labels.pod }}{{ with $labels.container }} ({{ . }}){{ end }} waits",
            "*pod* (*container*) waits",
        ),
        ("{{ if $labels.uuid }}one{{ else if $labels.pod }}a pod{{ else }}none{{ end }} fails", "one fails"),
        ("uses {{ $value | humanize1024 }}B of {{ $value | humanizePercentage }}", "uses … of …"),
    ],
)
def test_templates_in_summaries_become_label_names_or_an_ellipsis(summary: str, sentence: str) -> None:
    assert said(summary) == sentence


def test_inhibitions_in_prometheus_md_are_those_of_alerts_md() -> None:
    rules = yaml.safe_load(example("yaml"))["inhibit_rules"]
    blocks = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "docs/prometheus.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (whole,) = [block for block in map(yaml.safe_load, blocks) if "inhibit_rules" in block]

    assert rules
    assert whole["inhibit_rules"] == rules


@pytest.mark.tools
def test_alertmanager_accepts_the_example(tmp_path: Path) -> None:
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: all}\nreceivers: [{name: all}]\n" + example("yaml"))
    command = [tool("amtool"), "check-config", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_thresholds_changes_those_that_it_names(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(example("toml"))
    numbers = load_thresholds(mine)
    for section, keys in tomllib.loads(example("toml")).items():
        for key, value in keys.items():
            assert getattr(getattr(numbers, section), key) == value
            assert getattr(getattr(load_thresholds(), section), key) != value
