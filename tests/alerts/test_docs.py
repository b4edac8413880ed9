"""The page of docs about the alerts."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from alerts.docs import alerts_markdown, said
from alerts.grouping import alert_groups
from alerts.thresholds import load_thresholds
from tests.end_to_end.programs import program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/alerts.md"


def example(language: str) -> str:
    """Give the first example of a language on the page, moved to the left margin."""
    found = re.search(rf"^( *)```{language}\n(.*?)^ *```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return re.sub(rf"^{found[1]}", "", found[2], flags=re.MULTILINE)


def test_the_page_is_what_the_code_makes() -> None:
    """Who changed an alert has run `make docs`."""
    assert PAGE.read_text() == alerts_markdown(load_thresholds())


def test_every_alert_stands_on_the_page() -> None:
    """Each alert has its row, with a link to its runbook."""
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
def test_a_summary_is_a_sentence_without_its_template(summary: str, sentence: str) -> None:
    """What is in braces becomes the name of a label, or an ellipsis."""
    assert said(summary) == sentence


def test_both_pages_inhibit_alike() -> None:
    """The whole configuration of docs/prometheus.md has the inhibitions that docs/alerts.md explains."""
    rules = yaml.safe_load(example("yaml"))["inhibit_rules"]
    blocks = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "docs/prometheus.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (whole,) = [block for block in map(yaml.safe_load, blocks) if "inhibit_rules" in block]

    assert rules
    assert whole["inhibit_rules"] == rules


def test_alertmanager_takes_the_example(tmp_path: Path) -> None:
    """The rules of inhibition are such as Alertmanager reads."""
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: all}\nreceivers: [{name: all}]\n" + example("yaml"))
    done = subprocess.run(
        [program("amtool"), "check-config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_own_numbers_is_taken(tmp_path: Path) -> None:
    """The file that the page gives as an example changes what it names, and nothing else is asked for."""
    mine = tmp_path / "mine.toml"
    mine.write_text(example("toml"))
    numbers = load_thresholds(mine)
    for section, keys in tomllib.loads(example("toml")).items():
        for key, value in keys.items():
            assert getattr(getattr(numbers, section), key) == value
            assert getattr(getattr(load_thresholds(), section), key) != value
