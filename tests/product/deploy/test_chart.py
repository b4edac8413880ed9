"""The chart is generated, packed and installed as it should be."""

import base64
import gzip
import json
import re
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.charts.write import chart_files
from tests.product.deploy.charts import EVERYTHING, NAMESPACE, chart, everything, helm, template
from tests.product.deploy.render import CHART
from tests.product.deploy.rendering import Manifest, container, environment, example, named, only, pod_spec
from tests.product.deploy.schemas import OLDEST, validate
from tests.tools import ROOT

# The limit of a Secret, in which Helm keeps a release.
MOST_OF_A_SECRET = 1 << 20


def selectors(objects: list[Manifest]) -> list[Any]:
    """Return what chooses pods, which must not change between two versions of a release."""
    return [each["spec"].get("selector") for each in objects if "selector" in each.get("spec", {})]


@pytest.mark.tools
def test_everything_at_once_is_valid_for_old_clusters() -> None:
    """The oldest Kubernetes that the chart supports knows every field of every object."""
    validate(everything(), OLDEST)


def test_the_chart_is_for_the_project_and_the_oldest_kubernetes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert about["version"] == about["appVersion"] == project["version"]
    assert about["kubeVersion"] == f">={OLDEST}-0"


def test_generated_files_are_up_to_date() -> None:
    """Schema, table of values, rules and dashboards are those that ``make chart`` writes."""
    generated = chart_files()
    committed = {path.relative_to(CHART).as_posix() for path in CHART.glob("files/**/*") if path.is_file()}

    outdated = [path for path, text in generated.items() if (CHART / path).read_text() != text]
    assert outdated == [], "run make chart"
    assert committed <= generated.keys()


def test_no_value_is_without_effect() -> None:
    """The templates name each value."""
    templates = "".join(path.read_text() for path in CHART.glob("templates/*"))
    keys = re.findall(r"^\| `(\S+)` \|", (CHART / "README.md").read_text(), re.MULTILINE)

    assert keys
    assert [key for key in keys if not re.search(rf"[.\"]{key.split('.')[-1]}\b", templates)] == []


@pytest.mark.tools
def test_a_release_fits_into_its_secret() -> None:
    """The chart with its files and all that it renders takes less than half of it, as Helm encodes them."""
    files = [
        {"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()}
        for path in CHART.rglob("*")
        if path.is_file()
    ]
    release = json.dumps({"chart": files, "manifest": everything()})

    assert len(base64.b64encode(gzip.compress(release.encode()))) < MOST_OF_A_SECRET / 2


@pytest.mark.tools
def test_the_package_has_what_it_needs_and_no_more(tmp_path) -> None:
    """``helm package`` takes every file of the chart, and no leftover of editors and systems."""
    folder = tmp_path / CHART.name
    shutil.copytree(CHART, folder)
    leftovers = (
        ".DS_Store",
        "values.yaml~",
        "templates/.daemonset.yaml.swp",
        "examples/gke.yaml.orig",
        "a.tgz",
    )
    for leftover in leftovers:
        (folder / leftover).touch()
    done = helm("package", folder, "--destination", tmp_path)
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        names = {name.removeprefix(f"{CHART.name}/") for name in packed.getnames()}

    assert done.returncode == 0, done.stderr
    wanted = {path.relative_to(CHART).as_posix() for path in CHART.rglob("*") if path.is_file()}
    assert names == wanted - {".helmignore"}


@pytest.mark.tools
def test_selectors_never_change() -> None:
    """They depend only on the names of chart and release, so that a release can be upgraded."""
    changed = {"commonLabels": {"a": "b"}, "podLabels": {"c": "d"}, "image": {"tag": "9.9.9"}}
    before = chart("hub", "network-policy")

    assert len(selectors(before)) == 4
    assert selectors(before) == selectors(chart("hub", "network-policy", values=changed))


@pytest.mark.tools
def test_two_releases_share_no_object() -> None:
    """Two in a namespace, and two of one name in two namespaces."""
    values = EVERYTHING | {"dashboards": {"enabled": False}, "podMonitor": {"enabled": True}}
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for release, namespace in (("one", "a"), ("two", "a"), ("one", "b"))
        for each in chart(values=values, release=release, namespace=namespace)
    ]

    assert len(names) == len(set(names))


@pytest.mark.tools
def test_each_selector_chooses_one_workload() -> None:
    """No selector matches the pods of another release, nor that of the hub those of the exporter."""
    objects = [each for name in ("one", "two") for each in chart("hub", "network-policy", release=name)]
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in objects
        if "template" in each.get("spec", {})
    ]

    for selector in selectors(objects):
        wanted = selector.get("matchLabels", selector)
        assert len([labels for labels in pods if wanted.items() <= labels.items()]) == 1


@pytest.mark.tools
def test_all_objects_are_in_the_namespace_of_the_release() -> None:
    """Except those with a namespace of their own."""
    monitor = only(everything(), "PodMonitor")

    assert {each["metadata"].get("namespace") for each in everything()} == {"elsewhere", "monitoring", None}
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["elsewhere"]}


@pytest.mark.tools
def test_values_keep_their_type() -> None:
    """YAML reads no name as a number or a switch, no number as text, and no key twice."""
    odd = {
        "nameOverride": "on",
        "serviceAccount": {"name": "456"},
        "priorityClassName": "no",
        "runtimeClassName": "1",
        "revisionHistoryLimit": 1_000_000,
        "terminationGracePeriodSeconds": 1_000_000,
        "image": {"tag": "_1.0." + "x." * 50},
        "commonLabels": {"team": "a", "app.kubernetes.io/version": "2"},
        "service": {"labels": {"team": "b"}},
        "podAnnotations": {"prometheus.io/scrape": "false"},
        "webConfig": {"existingSecret": "7", "clientCaSecret": "8", "tlsSecret": "9"},
        "resourceQuota": {"enabled": True, "pods": 1_000_000},
        "podMonitor": {"enabled": True, "labels": {"team": "c"}},
        "dashboards": {"enabled": True, "labels": {"team": "d"}},
        "hub": {
            "enabled": True,
            "prometheusUrl": "http://p",
            "window": 1e6,
            "nodeUrlTemplate": "http://h/ #: y",
        },
    }
    objects = chart(values=odd, release="true", namespace="123")
    (hub,) = named(objects, "Deployment", "-hub")["spec"]["template"]["spec"]["containers"]
    teams = {(each["kind"], each["metadata"]["labels"]["team"]) for each in objects}
    annotations = only(objects, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]

    validate(objects)
    assert hub["args"][2:] == ["--window=1000000", "--node-url-template=http://h/ #: y"]
    assert only(objects, "DaemonSet")["metadata"]["labels"]["app.kubernetes.io/instance"] == "true"
    assert {("Service", "b"), ("PodMonitor", "c"), ("ConfigMap", "d"), ("DaemonSet", "a")} <= teams
    assert annotations["prometheus.io/scrape"] == "false"


@pytest.mark.tools
def test_a_users_variable_replaces_the_charts() -> None:
    """A container with the same name twice cannot be applied."""
    own = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "nvidia.com/gpu=all"}]
    rendered = container(chart(values={"extraEnv": own}))
    names = [each["name"] for each in rendered["env"]]

    assert len(names) == len(set(names))
    assert environment(rendered)["NVIDIA_VISIBLE_DEVICES"] == "nvidia.com/gpu=all"
    assert environment(rendered)["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


@pytest.mark.tools
def test_the_version_is_a_label_whatever_the_tag() -> None:
    """A tag may be longer than a label, and begin and end with other characters."""
    for tag, label in (("_1.0_", "1.0"), ("v" + "1." * 60, "v" + "1." * 30 + "1")):
        labels = only(chart(values={"image": {"tag": tag}}), "Service")["metadata"]["labels"]

        assert labels["app.kubernetes.io/version"] == label


@pytest.mark.tools
def test_names_do_not_repeat_the_name_of_the_release() -> None:
    """If one name contains the other, the longer is used alone; a long one is shortened."""
    names = {
        "gpuslice": "gpuslice-exporter",
        "gpuslice-exporter": "gpuslice-exporter",
        "gpus": "gpus-gpuslice-exporter",
        "gpus.prod": "gpus-prod-gpuslice-exporter",
        "x" * 53: "x" * 52,
    }

    assert {name: only(chart(release=name), "DaemonSet")["metadata"]["name"] for name in names} == names


@pytest.mark.tools
def test_a_release_whose_name_a_service_cannot_have_says_so() -> None:
    """The name of a Service begins with a letter; Helm lets that of a release begin with a number."""
    assert "set fullnameOverride" in template(CHART, (), "", release="4090-pool").stderr


@pytest.mark.tools
def test_another_chart_can_depend_on_this_one(tmp_path) -> None:
    """As a dependency with a condition and global values it renders the same, in a namespace of its own."""
    shutil.copytree(CHART, tmp_path / "charts" / CHART.name)
    dependency = {"name": CHART.name, "version": "*", "condition": f"{CHART.name}.enabled"}
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(about))
    values = {"global": {"a": 1}, CHART.name: {"enabled": True, "namespaceOverride": "gpus"}}
    done = template(tmp_path, (), json.dumps(values), "--namespace", NAMESPACE)

    assert done.returncode == 0, done.stderr
    rendered = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert rendered["DaemonSet"]["spec"]["template"]["spec"] == pod_spec(example())
    assert {each["metadata"]["namespace"] for each in rendered.values()} == {"gpus"}


@pytest.fixture(scope="module")
def chart_with_notes(tmp_path_factory) -> Path:
    """Return a copy of the chart that renders its notes: Helm prints them only if there is a cluster."""
    folder = tmp_path_factory.mktemp("notes") / CHART.name
    shutil.copytree(CHART, folder)
    (folder / "notes").write_text((CHART / "templates/NOTES.txt").read_text())
    (folder / "templates/daemonset.yaml").write_text('notes: {{ tpl (.Files.Get "notes") . | toJson }}\n')
    return folder


@pytest.mark.tools
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["ds/gpuslice-exporter 9836", "http://localhost:9836/", "No monitor"]),
        ({"config": {"listen": ":9900"}, "hostPID": False}, [":9900/", "hostPID is off"]),
        (
            {"podMonitor": {"enabled": True}, "namespaceOverride": "gpus"},
            ["-n gpus exec", "release: NAME-OF-ITS-RELEASE"],
        ),
        ({"webConfig": {"existingSecret": "web", "scheme": "https"}}, ["https://localhost"]),
        (
            {"kubernetesApi": {"enabled": True}, "openshift": {"enabled": True}},
            ["EXTRAS=kubernetes", "oc annotate"],
        ),
        ({"hub": {"enabled": True, "prometheusUrl": "http://p"}}, ["svc/gpuslice-exporter-hub 9836"]),
        (
            {"hub": {"enabled": True, "prometheusUrl": "http://p", "waiting": {"enabled": True}}},
            ["hub.waiting is on", "EXTRAS=kubernetes"],
        ),
        (
            {
                "hub": {
                    "enabled": True,
                    "prometheusUrl": "http://p",
                    "config": {"route-prefix": "/gpus"},
                    "ingress": {"enabled": True, "hosts": ["a.example"], "path": "/gpus", "tls": [{}]},
                }
            },
            ["https://a.example/gpus/"],
        ),
    ],
)
def test_the_notes_name_what_was_installed(values, words, chart_with_notes) -> None:
    """They have the right names, port and scheme, and what the chosen features need."""
    notes = _notes(chart_with_notes, values)

    assert [word for word in words if word not in notes] == []


@pytest.mark.tools
@pytest.mark.parametrize(
    ("values", "scraped"),
    [
        ({}, True),
        ({"scrapeAnnotations": False}, False),
        ({"podMonitor": {"enabled": True}}, False),
        ({"podMonitor": {"enabled": True}, "monitor": {"enabled": True}}, True),
    ],
)
def test_the_notes_say_if_nothing_scrapes_a_hub_that_reads_the_cluster(
    values, scraped, chart_with_notes
) -> None:
    """Its alert would be silent."""
    monitor = {"monitor": values["monitor"]} if "monitor" in values else {}
    hub = {"enabled": True, "prometheusUrl": "http://p", "waiting": {"enabled": True}, **monitor}
    rest = {name: value for name, value in values.items() if name != "monitor"}

    assert ("set hub.monitor.enabled" not in _notes(chart_with_notes, {"hub": hub, **rest})) is scraped


def _notes(chart: Path, values: dict[str, Any]) -> str:
    options = ("--namespace", NAMESPACE, "--show-only", "templates/daemonset.yaml")
    return str(yaml.safe_load(template(chart, (), json.dumps(values), *options).stdout)["notes"])
