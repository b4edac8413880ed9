"""The configurations of docs/prometheus.md are valid, and its names and figures exist."""

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.tools import ROOT, tool

PAGE = (ROOT / "docs/prometheus.md").read_text()
BASE = ROOT / "deploy/base"
CODE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAME = re.compile(r"\b(?:gpuslice|DCGM)_[A-Za-z0-9_]+\b(?!\()")
SCRAPED = {"job_name": "of-the-test", "static_configs": [{"targets": ["127.0.0.1:9836"]}]}


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return [code for name, code in CODE.findall(PAGE) if name == language]


def documents(*keys: str) -> list[Any]:
    """Return the documents with one of these keys at the top."""
    return [each for each in map(yaml.safe_load, blocks("yaml")) if each.keys() & set(keys)]


@cache
def rules() -> tuple[Mapping[str, Any], ...]:
    """Return all records and alerts."""
    files = rule_files(load_thresholds())
    texts = [files[name] for name in (RECORDING, ALERTS)]
    groups = [group for text in texts for group in yaml.load(text, yaml.CSafeLoader)["groups"]]
    return tuple(rule for group in groups for rule in group["rules"])


def named(kind: str) -> set[str]:
    """Return the names of all rules of a kind: "record" or "alert"."""
    return {rule[kind] for rule in rules() if kind in rule}


def run_check(*command: str) -> None:
    """Run a program that checks a configuration; its objections fail the test."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_block_of_yaml_is_checked_here() -> None:
    known = configurations(), documents("route")

    assert sum(map(len, known)) == len(blocks("yaml"))


def configurations() -> list[Any]:
    """Return each configuration of Prometheus; parts are put into a whole one."""
    writing = [{**part, "scrape_configs": [SCRAPED]} for part in documents("remote_write")]
    scraping = documents("metric_relabel_configs", "relabel_configs")
    return [
        *documents("scrape_configs"),
        *writing,
        *({"scrape_configs": [{**SCRAPED, **part}]} for part in scraping),
    ]


def test_prometheus_accepts_the_configurations(tmp_path: Path) -> None:
    """Debian builds it without discovery by Kubernetes, which the next test checks."""
    files = []
    for number, configuration in enumerate(configurations()):
        for job in configuration["scrape_configs"]:
            job.pop("kubernetes_sd_configs", None)
        files.append(tmp_path / f"{number}.yml")
        files[-1].write_text(yaml.safe_dump(configuration))

    assert files
    run_check(tool("promtool"), "check", "config", *map(str, files))


def test_pods_are_found_where_they_are_deployed() -> None:
    """The scrape configuration has the namespace, label and port of the base's pods."""
    (job,) = documents("scrape_configs")[0]["scrape_configs"]
    pods = yaml.safe_load((BASE / "daemonset.yaml").read_text())
    container = pods["spec"]["template"]["spec"]["containers"][0]
    name = pods["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]

    discovery = {"role": "pod", "namespaces": {"names": [pods["metadata"]["namespace"]]}}
    assert job["kubernetes_sd_configs"] == [discovery]
    assert job["relabel_configs"][0]["regex"] == f"{name};{container['ports'][0]['name']}"
    assert job["honor_labels"] is True


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of the example of Alertmanager's configuration."""
    (example,) = documents("route")
    written = tmp_path_factory.mktemp("alertmanager") / "alertmanager.yml"
    written.write_text(yaml.safe_dump(example))
    return str(written)


@pytest.mark.tools
def test_alertmanager_accepts_its_configuration(alertmanager: str) -> None:
    run_check(tool("amtool"), "check-config", alertmanager)


@pytest.mark.tools
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=GpuSliceGpuLost severity=critical node=a uuid=b", "on-call"),
        ("alertname=GpuSliceHolderIdle severity=info namespace=team-a-lab pod=b", "team-a"),
        ("alertname=GpuSliceHolderIdle severity=info namespace=team-b pod=b", "digest"),
        ("alertname=GpuSliceEccUncorrected severity=warning node=a uuid=b", "platform"),
        ("alertname=Watchdog severity=critical", "platform"),
    ],
)
def test_the_example_routes_alerts(alertmanager: str, labels: str, receiver: str) -> None:
    """Those of holders to the tenant, critical ones to the on-call receiver, waste to a digest."""
    route = ("config", "routes", "test", f"--config.file={alertmanager}", f"--verify.receivers={receiver}")

    run_check(tool("amtool"), *route, *labels.split())


def test_inhibition_names_alerts_that_exist() -> None:
    """Each matcher of names in the example matches at least one alert."""
    (example,) = documents("route")
    for rule in example["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, pattern = matcher.split()[0], matcher.split('"')[1]
            if label != "alertname":
                continue
            assert any(re.fullmatch(pattern, name) for name in named("alert")), pattern


def test_names_of_series_and_alerts_exist() -> None:
    """In the reference, or as a rule."""
    reference = set(NAME.findall((ROOT / "docs/metrics.md").read_text()))
    text = re.sub(r"regex: .*", "", PAGE)
    records = set(re.findall(r"\b[a-z_]+:gpuslice_\w+:\w+", text))
    series = set(NAME.findall(re.sub(r"\b[a-z_]+:gpuslice_\w+:\w+", "", text)))
    alerts = set(re.findall(r"`(GpuSlice\w+)`", text))

    assert records <= named("record")
    assert alerts <= named("alert")
    assert {name for name in series if not name.endswith("_")} <= reference


def test_remote_write_keeps_the_sums() -> None:
    """It drops only the records of single containers, pods and GPUs, but for how long a GPU was observed."""
    (sums, _) = documents("remote_write")
    regex = sums["remote_write"][0]["write_relabel_configs"][0]["regex"]
    dropped = {name for name in named("record") if not re.fullmatch(regex, name)}

    assert {name.split(":")[0] for name in dropped} == {"container", "gpu", "pod"}
    assert {name for name in named("record") if "_usage" in name or "_observed_" in name} & dropped == {
        "container:gpuslice_usage:increase1h"
    }
