"""The chart renders, is valid, and is packed as it should be."""

import base64
import gzip
import json
import re
import shutil
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy.charts.write import chart_files
from tests.deploy.charts import (
    CHART,
    EVERYTHING,
    NAMESPACE,
    chart,
    environment,
    everything,
    helm,
    named,
    selectors,
    template,
)
from tests.deploy.rendering import container, only, pod_spec
from tests.deploy.schemas import OLDEST, validate
from tests.deploy.tools import ROOT

# Kubernetes takes no more in a Secret, and Helm keeps each release in one.
LARGEST_SECRET = 1 << 20


@pytest.mark.slow
def test_everything_at_once_is_valid_for_old_clusters() -> None:
    """The oldest Kubernetes that the chart is for knows every field of every object of all features."""
    validate(everything(), OLDEST)
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert about["kubeVersion"] == f">={OLDEST}-0"


def test_the_chart_has_the_version_of_the_project() -> None:
    """Chart, program and image go by one version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert about["version"] == about["appVersion"] == project["version"]
    assert container(chart())["image"] == f"{project['name']}:{project['version']}"


@pytest.mark.slow
def test_what_is_made_is_what_is_there() -> None:
    """Schema, table of values, rules and dashboards are those that ``python -m deploy.charts`` writes."""
    made = chart_files()
    beside = {path.relative_to(CHART).as_posix() for path in CHART.glob("files/**/*") if path.is_file()}

    assert {path: (CHART / path).read_text() for path in made} == made
    assert beside <= made.keys()


def test_no_value_is_without_effect() -> None:
    """The templates speak of each value by its name."""
    templates = "".join(path.read_text() for path in CHART.glob("templates/*"))
    keys = re.findall(r"^\| `(\S+)` \|", (CHART / "README.md").read_text(), re.MULTILINE)

    assert keys
    assert [key for key in keys if not re.search(rf"[.\"]{key.split('.')[-1]}\b", templates)] == []


@pytest.mark.slow
def test_a_release_fits_into_its_secret() -> None:
    """The chart with its files and all that it renders, as Helm keeps them, take less than half a Secret."""

    def encoded(path: Path) -> dict:
        return {"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()}

    files = [encoded(path) for path in CHART.rglob("*") if path.is_file()]
    release = json.dumps({"chart": files, "manifest": everything()})

    assert len(base64.b64encode(gzip.compress(release.encode()))) < LARGEST_SECRET / 2


def test_the_package_has_what_it_needs_and_no_more(tmp_path) -> None:
    """``helm package`` takes every file of the chart, and nothing that editors and systems leave there."""
    folder = tmp_path / CHART.name
    shutil.copytree(CHART, folder)
    for junk in (
        ".DS_Store",
        "values.yaml~",
        "templates/.daemonset.yaml.swp",
        "examples/gke.yaml.orig",
        "a.tgz",
    ):
        (folder / junk).write_text("junk")
    done = helm("package", folder, "--destination", tmp_path)
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        names = {name.removeprefix(f"{CHART.name}/") for name in packed.getnames()}

    assert done.returncode == 0, done.stderr
    wanted = {path.relative_to(CHART).as_posix() for path in CHART.rglob("*") if path.is_file()}
    assert names == wanted - {".helmignore"}


def test_selectors_never_change() -> None:
    """What chooses pods depends on the names of chart and release only, so that a release can be upgraded."""
    changed = {"commonLabels": {"a": "b"}, "podLabels": {"c": "d"}, "image": {"tag": "9.9.9"}}
    before = chart("hub", "network-policy")

    assert len(selectors(before)) == 4
    assert selectors(before) == selectors(chart("hub", "network-policy", values=changed))


@pytest.mark.slow
def test_releases_side_by_side_do_not_meet() -> None:
    """Two releases in a namespace, and two of one name in two namespaces, share no object."""
    rendered = [
        chart(
            values=EVERYTHING | {"dashboards": {"enabled": False}} | place, release=release, namespace=space
        )
        for release, space, place in (
            ("one", "a", {"podMonitor": {"enabled": True}}),
            ("two", "a", {"podMonitor": {"enabled": True}}),
            ("one", "b", {"podMonitor": {"enabled": True}}),
        )
    ]
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for objects in rendered
        for each in objects
    ]

    assert len(names) == len(set(names))


@pytest.mark.slow
def test_releases_side_by_side_choose_their_own_pods() -> None:
    """No selector of one release meets the pods of another, nor that of the hub those of the exporter."""
    one, two = (chart("hub", "network-policy", release=name) for name in ("one", "two"))
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in [*one, *two]
        if "template" in each.get("spec", {})
    ]

    for selector in selectors([*one, *two]):
        wanted = selector.get("matchLabels", selector)
        assert len([labels for labels in pods if wanted.items() <= labels.items()]) == 1


def test_all_objects_lie_in_the_namespace_of_the_release() -> None:
    """What is namespaced names the release's namespace, but for what is told otherwise."""
    monitor = only(everything(), "PodMonitor")

    assert {each["metadata"].get("namespace") for each in everything()} == {"elsewhere", "monitoring", None}
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["elsewhere"]}


@pytest.mark.slow
def test_values_that_look_like_something_else_are_texts() -> None:
    """YAML takes neither names for numbers and switches, nor a number for text, nor reads one key twice."""
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
    template = only(objects, "DaemonSet")["spec"]["template"]

    validate(objects)
    assert hub["args"][2:] == ["--window=1000000", "--node-url-template=http://h/ #: y"]
    assert only(objects, "DaemonSet")["metadata"]["labels"]["app.kubernetes.io/instance"] == "true"
    assert {("Service", "b"), ("PodMonitor", "c"), ("ConfigMap", "d"), ("DaemonSet", "a")} <= teams
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "false"


def test_a_variable_is_there_once() -> None:
    """One of the user's takes the place of the chart's, for a name that is there twice cannot be applied."""
    own = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "nvidia.com/gpu=all"}]
    names = [each["name"] for each in container(chart(values={"extraEnv": own}))["env"]]

    assert len(names) == len(set(names))
    assert (
        environment(container(chart(values={"extraEnv": own}))).items()
        >= {
            "NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu=all",
            "NVIDIA_DRIVER_CAPABILITIES": "utility",
        }.items()
    )


def test_the_version_is_a_label_whatever_the_tag() -> None:
    """A tag may be longer than a label, and begin and end as none may."""
    for tag, label in (("_1.0_", "1.0"), ("v" + "1." * 60, "v" + "1." * 30 + "1")):
        labels = only(chart(values={"image": {"tag": tag}}), "Service")["metadata"]["labels"]

        assert labels["app.kubernetes.io/version"] == label


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("gpuslice", "gpuslice-exporter"),
        ("gpuslice-exporter", "gpuslice-exporter"),
        ("gpus", "gpus-gpuslice-exporter"),
        ("gpus.prod", "gpus-prod-gpuslice-exporter"),
        ("x" * 53, "x" * 52),
    ],
)
def test_names_do_not_repeat_themselves(release, name) -> None:
    """Where one name has the other in it the longer stands alone; a long one is cut."""
    assert only(chart(release=release), "DaemonSet")["metadata"]["name"] == name


def test_a_release_whose_name_a_service_cannot_have_says_so() -> None:
    """The name of a Service begins with a letter; Helm lets that of a release begin with a number."""
    assert "set fullnameOverride" in template(CHART, (), "", release="4090-pool").stderr


def test_another_chart_can_depend_on_this_one(tmp_path) -> None:
    """As a dependency with a condition and global values it renders the same, in a namespace of its own."""
    shutil.copytree(CHART, tmp_path / "charts" / CHART.name)
    dependency = {"name": CHART.name, "version": "*", "condition": f"{CHART.name}.enabled"}
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(about))
    done = template(
        tmp_path,
        (),
        json.dumps({"global": {"a": 1}, CHART.name: {"enabled": True, "namespaceOverride": "gpus"}}),
        "--namespace",
        NAMESPACE,
    )

    assert done.returncode == 0, done.stderr
    rendered = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert rendered["DaemonSet"]["spec"]["template"]["spec"] == pod_spec(chart())
    assert {each["metadata"]["namespace"] for each in rendered.values()} == {"gpus"}


@pytest.fixture(scope="module")
def noting(tmp_path_factory) -> Path:
    """Give a copy of the chart that renders its notes, for Helm prints them only where there is a cluster."""
    folder = tmp_path_factory.mktemp("noting") / CHART.name
    shutil.copytree(CHART, folder)
    (folder / "notes").write_text((CHART / "templates/NOTES.txt").read_text())
    (folder / "templates/daemonset.yaml").write_text('notes: {{ tpl (.Files.Get "notes") . | toJson }}\n')
    return folder


@pytest.mark.parametrize(
    ("values", "told"),
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
        (
            {"hub": {"enabled": True, "prometheusUrl": "http://p"}},
            ["svc/gpuslice-exporter-hub 9836"],
        ),
    ],
)
def test_the_notes_name_what_was_installed(values, told, noting) -> None:
    """What Helm prints at the end has the right names, port and scheme, and what the chosen features need."""
    done = template(
        noting, (), json.dumps(values), "--namespace", NAMESPACE, "--show-only", "templates/daemonset.yaml"
    )
    notes = yaml.safe_load(done.stdout)["notes"]

    assert [words for words in told if words not in notes] == []
