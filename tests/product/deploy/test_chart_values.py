"""The chart's values reach each option of the program; wrong ones are refused by name."""

import json
import re
import shlex
from inspect import getsource

import jsonschema
import pytest

from deploy.charts.schema import HUB_OPTIONS, NODE_OPTIONS
from deploy.charts.values import read_values
from exporter.commands.parser import parse
from exporter.config import ListenAddress, load_settings
from exporter.fleet import cluster_source, commands
from tests.core.config.test_settings import VALUES
from tests.product.deploy.charts import chart, refusal
from tests.product.deploy.render import CHART
from tests.product.deploy.rendering import container, environment, named

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# Instead of samples of the settings that probes could not reach.
SAMPLES = VALUES | {
    "listen": (":9999", ListenAddress(None, 9999)),
    "node_name": ("$(NODE_NAME).example", "$(NODE_NAME).example"),
}
# The chart derives these from values of its own, and refuses the options.
DERIVED = {"kubelet_root", "kubernetes_api"}
# The hub has values of its own for these.
HUB_VALUES = {"prometheus_url", "web_config"}


def _key(name: str) -> str:
    return name.replace("_", "-")


def test_every_option_is_a_key_of_the_values() -> None:
    """The schema names each option of the program that a file of settings may have, and no other."""
    assert list(SCHEMA["properties"]["config"]["properties"]) == [_key(name) for name in NODE_OPTIONS]


@pytest.mark.tools
def test_every_option_reaches_the_program() -> None:
    """The program reads from the container's environment what the values have."""
    chosen = {name: SAMPLES[name] for name in NODE_OPTIONS if name not in DERIVED}
    config = {_key(name): written for name, (written, _) in chosen.items()}
    settings = load_settings({"command": "serve"}, environment(container(chart(values={"config": config}))))

    assert SAMPLES.keys() == {*NODE_OPTIONS, *HUB_OPTIONS, *HUB_VALUES}
    assert {name: getattr(settings, name) for name in chosen} == {
        name: parsed for name, (_, parsed) in chosen.items()
    }


@pytest.mark.tools
def test_values_need_no_quotes() -> None:
    """Switches that YAML reads as booleans, numbers and lists are understood; null is no value."""
    config = {
        "dcgm-names": False,
        "dcgm-version": 4.9,
        "pcie-throughput": True,
        "poll-interval": 2,
        "stale-after": 1e2,
        "gpu-hour-price": 2.5,
        "history-retention": 43200,
        "log-format": None,
        "pod-labels": ["team", "tier-.*"],
    }
    settings = load_settings({"command": "serve"}, environment(container(chart(values={"config": config}))))

    assert (settings.dcgm_names, settings.dcgm_version, settings.pcie_throughput) == ("off", "4.9", True)
    assert (settings.poll_interval, settings.stale_after, settings.history_retention) == (2, 100, 43200)
    assert settings.gpu_hour_price == 2.5
    assert [pattern.pattern for pattern in settings.pod_labels] == ["team", "tier-.*"]


@pytest.mark.tools
def test_further_arguments_reach_the_program() -> None:
    """For what the environment cannot hold, such as a pattern with a comma."""
    rendered = container(chart(values={"extraArgs": ["--resource-pattern=a{1,2}", "--log-level=debug"]}))
    settings = load_settings(vars(parse(rendered["args"])), {})

    assert settings.log_level == "debug"
    assert [pattern.pattern for pattern in settings.resource_pattern] == ["a{1,2}"]


@pytest.mark.tools
def test_the_values_of_the_hub_reach_the_program() -> None:
    """The program parses its command, flags and options; each option that it reads can be set."""
    samples = {name: SAMPLES[name] for name in HUB_OPTIONS}
    hub = {"enabled": True, "prometheusUrl": "http://p:9090", "refresh": "1m", "window": 3600}
    config = {_key(name): written for name, (written, _) in samples.items()}
    deployment = named(chart(values={"hub": hub | {"config": config}}), "Deployment", "-hub")
    (rendered,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = parse(rendered["args"])
    settings = load_settings(vars(flags), environment(rendered))

    assert (flags.command, flags.refresh, flags.window) == ("hub", 60, 3600)
    assert flags.node_url_template == "http://{instance}/"
    assert settings.prometheus_url == "http://p:9090"
    assert {name: getattr(settings, name) for name in samples} == {
        name: parsed for name, (_, parsed) in samples.items()
    }
    source = getsource(commands.hub) + getsource(commands.prometheus_of)
    read = set(re.findall(r"\bsettings\.(\w+)", source))
    assert read | {"log_level", "log_format"} == {*HUB_OPTIONS, *HUB_VALUES}
    # `hub.waiting` sets the one, and a pod has no use for the other.
    by_api = set(re.findall(r"\bsettings\.(\w+)", getsource(cluster_source.api_of_hub)))
    assert by_api == {"kubernetes_api", "kubeconfig"}


def test_the_schema_is_strict_and_describes_each_value() -> None:
    """It is draft 7, has every value and no other, and the descriptions of values.yaml."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    described = {}

    def walk(schema: dict, path: str) -> None:
        for name, child in schema["properties"].items():
            if "description" in child:
                described[f"{path}{name}"] = child["description"]
            else:
                assert child["additionalProperties"] is False
                walk(child, f"{path}{name}.")

    walk(SCHEMA, "")
    assert SCHEMA["additionalProperties"] is False
    assert {name: text for name, text in described.items() if name not in {"global", "enabled"}} == {
        value.path: value.text for value in read_values(CHART / "values.yaml")
    }


def test_a_value_without_a_description_is_refused(tmp_path) -> None:
    (tmp_path / "values.yaml").write_text("# -- This is described.\none: 1\n\n# A comment.\ntwo: 2\n")

    with pytest.raises(ValueError, match="line 5: two needs a description"):
        read_values(tmp_path / "values.yaml")


@pytest.mark.tools
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hosPID": True}, ["hosPID"]),
        ({"config": {"pol-interval": "5s"}}, ["/config", "pol-interval"]),
        ({"config": {"poll-interval": "soon"}}, ["/config/poll-interval", "soon"]),
        ({"config": {"log-level": "loud"}}, ["/config/log-level", "debug"]),
        ({"config": {"config": "/etc/x.yaml"}}, ["/config", "'config'"]),
        ({"hub": {"config": {"poll-interval": "5s"}}}, ["/hub/config", "poll-interval"]),
        ({"image": {"repository": "r.example/x:1"}}, ["/image/repository"]),
        ({"image": {"tag": 1.0}}, ["/image/tag", "want string"]),
        ({"kubeletRoot": "/var/lib/kubelet/"}, ["/kubeletRoot"]),
        ({"securityContext": {"privilege": True}}, ["/securityContext", "privilege"]),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, ["/podLabels/app.kubernetes.io~1name"]),
        ({"prometheusRule": {"disabled": ["GpuSliceFoo"]}}, ["/prometheusRule/disabled/0"]),
        (
            {"prometheusRule": {"overrides": {"GpuSliceFoo": {}}}},
            ["/prometheusRule/overrides", "GpuSliceFoo"],
        ),
        ({"podMonitor": {"interval": "often"}}, ["/podMonitor/interval"]),
        ({"config": {"listen": ":0100"}}, ["/config/listen"]),
        ({"webConfig": {"content": {"tls_server_config": {"cert": 1}}}}, ["/tls_server_config/cert"]),
    ],
    ids=str,
)
def test_a_wrong_value_is_named(values, words) -> None:
    """A key that does not exist and a value of the wrong type are refused, with their path."""
    message = refusal(values)

    assert [word for word in words if word not in message] == []


@pytest.mark.tools
@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "Enable one of them"),
        ({"hub": {"enabled": True}}, "hub.prometheusUrl"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
        ({"amd": {"enabled": True}}, "Set privileged to true"),
        ({"config": {"kubernetes-api": "on"}}, "leave config.kubernetes-api out"),
        ({"webConfig": {"existingSecret": "a", "content": {"rate_limit": {}}}}, "use one of them"),
        (
            {"webConfig": {"existingSecret": "a"}, "config": {"web-config": "/a"}},
            "leave config.web-config out",
        ),
        ({"resourceQuota": {"enabled": True}, "priorityClassName": ""}, "priorityClassName"),
        ({"hostNetwork": True, "networkPolicy": {"enabled": True}}, "Choose one of them"),
        ({"config": {"node-name": "gpu-1"}}, "$(NODE_NAME)"),
        ({"config": {"node-name": "$$(NODE_NAME)"}}, "$(NODE_NAME).example.com"),
        ({"config": {"kubelet-root": "/data/kubelet"}}, "set kubeletRoot"),
        ({"webConfig": {"tlsSecret": "a"}}, "Set webConfig.content"),
        ({"webConfig": {"tlsSecret": "a", "content": {"rate_limit": {}}}}, "Add tls_server_config"),
        ({"hub": {"webConfig": {"scheme": "https"}}}, "hub.webConfig.existingSecret"),
        (
            {"webConfig": {"content": {"basic_auth_users": {"a": "$2y$"}}}, "podMonitor": {"enabled": True}},
            "podMonitor.endpoint.basicAuth",
        ),
        ({"networkPolicy": {"enabled": True}, "kubernetesApi": {"enabled": True}}, "networkPolicy.egress"),
        (
            {"networkPolicy": {"enabled": True}, "config": {"dcgm-exporter-url": "http://p"}},
            "networkPolicy.egress",
        ),
        (
            {"config": {"dcgm-version": 4.9, "dcgm-hostname-label": "Hostname"}},
            "leave config.dcgm-hostname-label out",
        ),
        ({"config": {"listen": "127.0.0.1:9836"}}, "Set a port alone"),
        ({"config": {"listen": ":99999"}}, "a number from 1 to 65535"),
        ({"hub": {"config": {"listen": "localhost:1"}}}, "hub.config.listen is localhost:1"),
        ({"config": {"resource-pattern": ["a{1,2}"]}}, 'extraArgs: ["--resource-pattern=a{1,2}"]'),
        (
            {"config": {"log-level": "debug"}, "extraEnv": [{"name": "GPUSLICE_LOG_LEVEL", "value": "info"}]},
            "config.log-level sets: use one of them",
        ),
        (
            {"hub": {"config": {"log-level": "debug"}, "extraEnv": [{"name": "GPUSLICE_LOG_LEVEL"}]}},
            "hub.config.log-level sets: use one of them",
        ),
        (
            {"config": {"log-level": "debug"}, "extraArgs": ["--log-level", "info"]},
            "config.log-level sets: use one of them",
        ),
        ({"prometheusRule": {"enabled": True, "alertsFile": "groups: 1"}}, "prometheusRule.alertsFile"),
        ({"prometheusRule": {"enabled": True, "recordingFile": "- ["}}, "prometheusRule.recordingFile"),
        (
            {"prometheusRule": {"enabled": True, "alertsFile": "groups: [{name: a, rules: [{alert: 5}]}]"}},
            "prometheusRule.alertsFile is not a file of rules",
        ),
    ],
    ids=str,
)
def test_a_combination_that_cannot_work_is_refused_with_the_remedy(values, remedy) -> None:
    """Helm fails instead of the cluster."""
    assert remedy in refusal(values)


def test_the_readme_shows_files_and_values_that_exist() -> None:
    """Its table of examples is complete, and its commands set values of the chart."""
    text = (CHART / "README.md").read_text()
    listed = {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([\w-]+)\.yaml`", line)
    }
    commands = shlex.split(" ".join(re.findall(r"--set(?:-file)? \S+", text)))
    keys = {word.partition("=")[0] for word in commands if not word.startswith("--")}

    assert listed == {path.stem for path in CHART.glob("examples/*.yaml")}
    assert keys <= {value.path for value in read_values(CHART / "values.yaml")}
    assert keys


def test_the_links_of_the_readme_name_files_and_headings() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", (CHART / "README.md").read_text())
    missing = [path for path, _ in links if not (CHART / path).exists()]
    assert links
    assert missing == []
    assert [
        (path, anchor)
        for path, anchor in links
        if anchor and anchor not in _anchors((CHART / path).read_text())
    ] == []


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
