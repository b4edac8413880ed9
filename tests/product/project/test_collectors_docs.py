"""The examples of docs/collectors.md are valid, find the pods and the hub, and keep all series."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.commands.metrics import metrics_markdown
from tests.product.deploy.charts import chart
from tests.product.deploy.rendering import Manifest, example
from tests.tools import ROOT, tool

PAGE = (ROOT / "docs/collectors.md").read_text()
YAML = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
ALLOY = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
# The scrape configuration of docs/prometheus.md.
(JOB,) = next(
    found["scrape_configs"]
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/prometheus.md").read_text(), re.DOTALL)
    if "scrape_configs" in (found := yaml.safe_load(text))
)
SELECTED, NODE = JOB["relabel_configs"]
# Exports of components of Alloy that others refer to.
EXPORTS = {
    "discovery.kubernetes": "targets",
    "discovery.relabel": "output",
    "prometheus.remote_write": "receiver",
}
SERIES = re.compile(r"^\| `((?:gpuslice|DCGM)_\w+)` \|", re.MULTILINE)
# Those about the exporter itself and its calls of the driver.
NOT_FOR_DATADOG = re.compile(
    r"nvml_\w+|build_info|render_duration_seconds|attribution_inconsistent_total|unlisted_pods|driver_released"
)


def hub_address() -> str:
    """Return the address of the hub's Service as the chart makes it."""
    (service,) = [
        each
        for each in example("hub")
        if each["kind"] == "Service" and each["metadata"]["name"].endswith("-hub")
    ]
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    return f"{name}.{service['metadata']['namespace']}.svc:{port}"


def collector() -> Any:
    """Return the configuration of the OpenTelemetry collector."""
    (found,) = [each for each in YAML if "receivers" in each]
    return found


def test_every_example_is_checked_here() -> None:
    kinds = [key for each in YAML for key in each if key in {"receivers", "podAnnotations", "hub", "metrics"}]

    assert len(kinds) == len(YAML)
    assert len(ALLOY) == 2


def test_the_collector_scrapes_as_prometheus_does() -> None:
    """With the same job, the hub, and a pipeline of the configured parts; names stay."""
    found = collector()
    own, hub = found["receivers"]["prometheus"]["config"]["scrape_configs"]

    assert own == JOB | {"scrape_interval": "15s", "scrape_protocols": ["PrometheusText0.0.4"]}
    assert hub["scrape_protocols"] == own["scrape_protocols"]
    assert hub["static_configs"] == [{"targets": [hub_address()]}]
    assert found["exporters"]["prometheusremotewrite"]["add_metric_suffixes"] is False
    pipeline = {part: list(found[part]) for part in ("receivers", "exporters")}
    assert found["service"]["pipelines"]["metrics"] == pipeline


def test_prometheus_accepts_the_scrape_configuration(tmp_path: Path) -> None:
    """Debian's has no discovery by Kubernetes, and is older than the choice of formats."""
    configuration = json.loads(
        json.dumps(collector()["receivers"]["prometheus"]["config"]).replace("$$", "$")
    )
    for job in configuration["scrape_configs"]:
        job.pop("kubernetes_sd_configs", None)
        job.pop("scrape_protocols")
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(configuration))
    command = [tool("promtool"), "check", "config", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", ALLOY, ids=["PodMonitor", "scrape"])
def test_components_of_alloy_refer_to_each_other(text: str) -> None:
    """Blocks are closed, have labels of their own, and refer to exports of each other."""
    blocks = re.findall(r'^([a-z][\w.]*) "(\w+)" \{$', text, re.MULTILINE)
    references = re.findall(r"\b((?:discovery|prometheus)\.\w+)\.(\w+)\.(\w+)\b", text)

    assert text.count("{") == text.count("}")
    assert len(set(blocks)) == len(blocks)
    assert references
    for component, label, export in references:
        assert (component, label) in blocks
        assert EXPORTS[component] == export


def test_alloy_scrapes_as_prometheus_does() -> None:
    """The same pods, the label of the node, and the labels of the series; and the hub."""
    text = ALLOY[1]
    selected = f"source_labels = {json.dumps(SELECTED['source_labels'])}"

    assert selected in text
    assert re.search(rf'regex\s+= "{SELECTED["regex"]}"', text)
    assert json.dumps(NODE["source_labels"]) in text
    assert re.search(rf'target_label\s+= "{NODE["target_label"]}"', text)
    assert re.search(rf'job_name\s+= "{JOB["job_name"]}"', text)
    assert re.search(r"honor_labels\s+= true", text)
    assert json.dumps(JOB["kubernetes_sd_configs"][0]["namespaces"]["names"]) in text
    assert f'"__address__" = "{hub_address()}"' in text


def instance(annotations: dict[str, str], container: str) -> dict[str, Any]:
    """Return the configuration of the check in the annotation for a container."""
    check = json.loads(annotations[f"ad.datadoghq.com/{container}.checks"])["openmetrics"]
    (found,) = check["instances"]
    result: dict[str, Any] = found
    return result


@pytest.mark.tools
def test_the_annotations_for_datadog_name_container_and_port() -> None:
    """The chart accepts these values; the annotation is on the pod with a container of that name and port."""
    values = [each for each in YAML if "podAnnotations" in each or "hub" in each]
    merged = {"hub": {"enabled": True, "prometheusUrl": "http://a:9090"}}
    for each in values:
        merged = {**merged, **each, "hub": {**merged["hub"], **each.get("hub", {})}}
    pods = [
        each["spec"]["template"]
        for each in chart(values=merged)
        if each["kind"] in {"DaemonSet", "Deployment"}
    ]

    assert len(values) == len(pods) == 2
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        found = instance(pod["metadata"]["annotations"], container["name"])
        assert found["openmetrics_endpoint"] == f"http://%%host%%:{_port(container)}/metrics"


def _port(container: Manifest) -> int:
    (port,) = container["ports"]
    number: int = port["containerPort"]
    return number


def test_datadog_gets_all_series_of_devices_and_containers() -> None:
    """The patterns match their names without the prefix."""
    (values,) = [each for each in YAML if "podAnnotations" in each]
    found = instance(values["podAnnotations"], "exporter")
    names = {name.removeprefix(found["raw_metric_prefix"]) for name in SERIES.findall(metrics_markdown())}
    left_out = {name for name in names if not any(re.search(each, name) for each in found["metrics"])}

    assert len(names) > 100
    assert left_out < names
    assert {name for name in left_out if not NOT_FOR_DATADOG.fullmatch(name)} == set()


def test_names_on_the_page_are_those_of_series() -> None:
    known = set(SERIES.findall(metrics_markdown()))
    named = set(re.findall(r"`((?:gpuslice|DCGM)_[A-Za-z0-9_]+)`", PAGE)) - {"gpuslice_"}
    # What a collector makes of a name.
    renamed = {name for name in named if {name.removesuffix("_total"), f"{name}_info"} & known} - known

    assert named - renamed <= known
    assert renamed == {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", "gpuslice_gpu"}
