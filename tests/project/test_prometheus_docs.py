"""docs/prometheus.md holds what it says: its configurations are taken, and its names and figures are ours."""

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
from tests.end_to_end.programs import program

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/prometheus.md").read_text()
BASE = ROOT / "deploy/base"
CODE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAME = re.compile(r"\b(?:gpuslice|DCGM)_[A-Za-z0-9_]+\b(?!\()")
SCRAPED = {"job_name": "of-the-test", "static_configs": [{"targets": ["127.0.0.1:9836"]}]}


def blocks(language: str) -> list[str]:
    """Give the page's blocks of code in a language."""
    return [code for name, code in CODE.findall(PAGE) if name == language]


def documents(*keys: str) -> list[Any]:
    """Give the YAML that has one of these keys at its top."""
    return [found for found in map(yaml.safe_load, blocks("yaml")) if found.keys() & set(keys)]


@cache
def rules() -> tuple[Mapping[str, Any], ...]:
    """Give all rules, records and alerts."""
    made = rule_files(load_thresholds())
    groups = [group for name in (RECORDING, ALERTS) for group in yaml.safe_load(made[name])["groups"]]
    return tuple(rule for group in groups for rule in group["rules"])


def named(kind: str) -> set[str]:
    """Give the names of all rules that are a "record" or an "alert"."""
    return {rule[kind] for rule in rules() if kind in rule}


def checked(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a checking program; it must find nothing."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_every_block_of_yaml_is_checked_here() -> None:
    """None is of a sort that the tests below do not know."""
    known = configurations(), documents("route")

    assert sum(map(len, known)) == len(blocks("yaml"))


def configurations() -> list[Any]:
    """Give each configuration of Prometheus; a part of one stands where it belongs."""
    writing = [{**part, "scrape_configs": [SCRAPED]} for part in documents("remote_write")]
    scraping = documents("metric_relabel_configs", "relabel_configs")
    return [
        *documents("scrape_configs"),
        *writing,
        *({"scrape_configs": [{**SCRAPED, **part}]} for part in scraping),
        *(found["receivers"]["prometheus"]["config"] for found in documents("exporters")),
    ]


@pytest.mark.parametrize("configuration", configurations())
def test_prometheus_takes_the_configuration(configuration: Any, tmp_path: Path) -> None:
    """``promtool check config`` finds nothing wrong in it.

    Debian builds it without discovery by Kubernetes, of which the next test looks at the words.
    """
    for job in configuration["scrape_configs"]:
        job.pop("kubernetes_sd_configs", None)
    written = tmp_path / "prometheus.yml"
    written.write_text(yaml.safe_dump(configuration))

    checked(program("promtool"), "check", "config", str(written))


def test_pods_are_found_where_they_are_deployed() -> None:
    """The scrape configuration looks for pods, in the namespace and with the label and port of the base."""
    (job,) = documents("scrape_configs")[0]["scrape_configs"]
    pods = yaml.safe_load((BASE / "daemonset.yaml").read_text())
    container = pods["spec"]["template"]["spec"]["containers"][0]
    name = pods["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]

    found = {"role": "pod", "namespaces": {"names": [pods["metadata"]["namespace"]]}}
    assert job["kubernetes_sd_configs"] == [found]
    assert job["relabel_configs"][0]["regex"] == f"{name};{container['ports'][0]['name']}"
    assert job["honor_labels"] is True


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the example of Alertmanager's configuration, and give its path."""
    (found,) = documents("route")
    written = tmp_path_factory.mktemp("alertmanager") / "alertmanager.yml"
    written.write_text(yaml.safe_dump(found))
    return str(written)


def test_alertmanager_takes_its_configuration(alertmanager: str) -> None:
    """``amtool check-config`` finds nothing wrong in it."""
    checked(program("amtool"), "check-config", alertmanager)


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
def test_alerts_go_where_the_example_sends_them(alertmanager: str, labels: str, receiver: str) -> None:
    """A tenant is told of its holders, somebody is called for what is critical, and waste is collected."""
    route = ("config", "routes", "test", f"--config.file={alertmanager}", f"--verify.receivers={receiver}")

    checked(program("amtool"), *route, *labels.split())


@pytest.mark.slow
def test_inhibition_names_alerts_that_there_are() -> None:
    """Each matcher of the names of alerts in the example meets at least one alert."""
    (found,) = documents("route")
    for rule in found["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, pattern = matcher.split()[0], matcher.split('"')[1]
            if label != "alertname":
                continue
            assert any(re.fullmatch(pattern, name) for name in named("alert")), pattern


def test_the_collector_scrapes_as_prometheus_does() -> None:
    """Its receiver has the same job, and its pipeline what is configured."""
    (collector,) = documents("exporters")
    (own,) = documents("scrape_configs")[0]["scrape_configs"]
    (job,) = collector["receivers"]["prometheus"]["config"]["scrape_configs"]

    assert job == own | {"scrape_interval": "15s"}
    assert collector["service"]["pipelines"]["metrics"] == {
        part: list(collector[part]) for part in ("receivers", "exporters")
    }


@pytest.mark.slow
def test_names_of_series_and_alerts_exist() -> None:
    """Each name on the page is in the reference, or is that of a rule."""
    reference = set(NAME.findall((ROOT / "docs/metrics.md").read_text()))
    text = re.sub(r"regex: .*", "", PAGE)
    records = set(re.findall(r"\b[a-z_]+:gpuslice_\w+:\w+", text))
    series = set(NAME.findall(re.sub(r"\b[a-z_]+:gpuslice_\w+:\w+", "", text)))
    alerts = set(re.findall(r"`(GpuSlice\w+)`", text))

    assert records <= named("record")
    assert alerts <= named("alert")
    assert {name for name in series if not name.endswith("_")} <= reference


def test_remote_write_keeps_the_sums() -> None:
    """The records that it keeps are all but those of single containers, pods and GPUs."""
    (sums, _) = documents("remote_write")
    regex = sums["remote_write"][0]["write_relabel_configs"][0]["regex"]
    lost = {name for name in named("record") if not re.fullmatch(regex, name)}

    assert {name.split(":")[0] for name in lost} == {"container", "gpu", "pod"}
