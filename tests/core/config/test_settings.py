import argparse
import json
import re
import socket
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.reference_pages import settings_page
from exporter.config import (
    ListenAddress,
    Settings,
    SettingsError,
    add_options,
    load_settings,
)
from exporter.config.headers import Header
from exporter.documents import shown

NAMES = [row.name for row in fields(Settings)]
IN_FILE = [name for name in NAMES if name != "config"]

PATHS = (
    "web_config",
    "prometheus_token_file",
    "prometheus_header_file",
    "prometheus_ca_file",
    "prices",
    "nvml_library",
    "kubelet_root",
    "pod_resources_socket",
    "pods_api_socket",
    "pod_log_dir",
    "proc_root",
    "sys_root",
    "cgroup_root",
    "hami_root",
    "hami_vnpu_root",
    "cgpu_root",
    "vcuda_root",
    "vgpu_manager_root",
    "mps_root",
    "runai_root",
    "job_mapping_dir",
    "driver_release_file",
    "kubeconfig",
)
# For each option: a text, and its value.
VALUES = {
    **{name: (f"/other/{name}", Path(f"/other/{name}")) for name in PATHS},
    "listen": ("127.0.0.1:9999", ListenAddress("127.0.0.1", 9999)),
    "route_prefix": ("/gpuslice", "/gpuslice"),
    "frame_ancestors": ("https://grafana.example.com:3000", ("https://grafana.example.com:3000",)),
    "node_name": ("gpu-7", "gpu-7"),
    "poll_interval": ("500ms", 0.5),
    "stale_after": ("2m", 120.0),
    "idle_after": ("30m", 1800.0),
    "gpu_hour_price": ("2.5", 2.5),
    "history_retention": ("12h", 43200.0),
    "prometheus_url": ("https://prometheus.monitoring:9090", "https://prometheus.monitoring:9090"),
    # Without a space, so that YAML needs no quotes.
    "prometheus_header": ("X-Scope-OrgID:team-a", (Header("X-Scope-OrgID", "team-a"),)),
    "resource_pattern": (r"nvidia\.com/a100.*", (re.compile(r"nvidia\.com/a100.*"),)),
    "dra_ignore_driver": (r"nic\.example\.com", (re.compile(r"nic\.example\.com"),)),
    "pod_labels": (r"app\.kubernetes\.io/.*", (re.compile(r"app\.kubernetes\.io/.*"),)),
    "metric_set": ("full", "full"),
    "metric_allowlist": ("gpuslice_gpu_fan_ratio", (re.compile("gpuslice_gpu_fan_ratio"),)),
    "metric_denylist": ("DCGM_.*", (re.compile("DCGM_.*"),)),
    "dcgm_names": ("only", "only"),
    "dcgm_version": ("both", "both"),
    "dcgm_hostname_label": ("hostname", "hostname"),
    "dcgm_exporter_url": ("http://localhost:9400/metrics", "http://localhost:9400/metrics"),
    "pcie_throughput": ("on", True),
    "kubernetes_api": ("on", "on"),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
}

# Errors do not have their values.
SECRET = {"prometheus_header"}
# Values that no path can have.
NO_PATHS = ["a\0b"]
BAD_VALUES: dict[str, list[str]] = {
    **dict.fromkeys(PATHS, NO_PATHS),
    "listen": [
        "9836",
        "localhost",
        ":99999",
        ":port",
        "::1:9836",
        "[::1:9836",
        "[x]:1",
        "a b:1",
        "unix:/run/s",
    ],
    "route_prefix": [
        "gpuslice",
        "/",
        "//a",
        "/a//b",
        "/a/../b",
        "/..",
        "/a b",
        "/a?b",
        "/a%2fb",
        "/ä",
        "http://a",
    ],
    "frame_ancestors": [
        "none",
        "*",
        "'self'",
        "grafana",
        "https://",
        "https://*.a",
        "https://a/",
        "https://a;script-src",
        "https://a b",
        "https://a:0",
        "https://a:65536",
        "https://u@a",
        "ftp://a",
        "https://a\nb",
        "self self",
    ],
    "node_name": ["a\tb", "a\udcff"],
    "poll_interval": ["soon", "-1s", "0", "50ms", "0.05", "2h", "61m", "1e3", "nan", "5 parsecs", "٣s", "5S"],
    "stale_after": ["never", "25h", "10ms"],
    "idle_after": ["never", "8d", "0s"],
    "gpu_hour_price": ["free", "-1", "1e3", "nan", "2,5", "٣"],
    "history_retention": ["never", "1m", "999h"],
    "prometheus_url": ["prometheus:9090", "ftp://prometheus"],
    "prometheus_header": ["team-a", "Host: a", "X-Scope-OrgID:", ": a", "X Scope: a", "X: ä", "X: a\0b"],
    "resource_pattern": ["nvidia(", "*", "a{99999999999999999999}", "(" * 5000],
    "dra_ignore_driver": ["nic(", "*"],
    "pod_labels": ["team(", "*", "a{99999999999999999999}", "(" * 5000],
    "metric_set": ["all", "CORE"],
    "metric_allowlist": ["gpu(", "*"],
    "metric_denylist": ["gpu(", "*"],
    "dcgm_names": ["true", "ON", "v1"],
    "dcgm_version": ["4.7", "4.8.3", "4.9.0", "Both", "5"],
    "dcgm_hostname_label": ["HOSTNAME", "host"],
    "dcgm_exporter_url": [
        "localhost:9400",
        "ftp://a/b",
        "http://",
        "http://a:port/",
        "http://a:0/",
        "http://[::1",
    ],
    "pcie_throughput": ["true", "1", "ON"],
    "kubernetes_api": ["yes", "OFF"],
    "log_level": ["trace", "INFO"],
    "log_format": ["logfmt"],
    "config": ["settings.yaml", "./settings.yaml"],
}


def kebab(name):
    """Return the name in flags and YAML keys."""
    return name.replace("_", "-")


def variable(name):
    """Return the name of the variable."""
    return f"GPUSLICE_{name.upper()}"


def parse(*argv):
    """Return the parsed flags of a command line."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    return vars(parser.parse_args(argv))


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a YAML file, and returns the environment that names it."""

    def write(text):
        path = tmp_path / "settings.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return {"GPUSLICE_CONFIG": str(path)}

    return write


def complaint(argv_namespace, environ):
    """Return the error of settings, which is one line."""
    with pytest.raises(SettingsError) as caught:
        load_settings(argv_namespace, environ)
    message = str(caught.value)
    assert "\n" not in message
    return message


def outcome(environ):
    """Return the error of settings, "" if they are valid."""
    try:
        load_settings({}, environ)
    except SettingsError as error:
        return str(error)
    return ""


def test_defaults():
    assert load_settings({}, {}) == Settings(
        config=None,
        listen=ListenAddress(None, 9836),
        web_config=None,
        route_prefix=None,
        frame_ancestors=(),
        node_name=socket.gethostname(),
        poll_interval=5.0,
        stale_after=60.0,
        idle_after=600.0,
        gpu_hour_price=None,
        prices=None,
        history_retention=21600.0,
        prometheus_url=None,
        prometheus_token_file=None,
        prometheus_header=(),
        prometheus_header_file=None,
        prometheus_ca_file=None,
        nvml_library=None,
        kubelet_root=Path("/var/lib/kubelet"),
        pod_resources_socket=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        pods_api_socket=Path("/var/lib/kubelet/pods-api/pods-api.sock"),
        pod_log_dir=Path("/var/log/pods"),
        proc_root=Path("/proc"),
        sys_root=Path("/sys"),
        cgroup_root=Path("/sys/fs/cgroup"),
        hami_root=Path("/usr/local/vgpu"),
        hami_vnpu_root=Path("/usr/local/hami-vnpu-core"),
        cgpu_root=Path("/proc/cgpu_km"),
        vcuda_root=Path("/etc/gpu-manager/vm"),
        vgpu_manager_root=Path("/etc/vgpu-manager"),
        mps_root=Path("/run/nvidia/mps"),
        runai_root=Path("/runai"),
        resource_pattern=(),
        dra_ignore_driver=(),
        pod_labels=(),
        job_mapping_dir=None,
        metric_set="core",
        metric_allowlist=(),
        metric_denylist=(),
        dcgm_names="default",
        dcgm_version="4.8",
        dcgm_hostname_label="Hostname",
        dcgm_exporter_url=None,
        pcie_throughput=False,
        driver_release_file=None,
        kubernetes_api="auto",
        kubeconfig=None,
        log_level="info",
        log_format="text",
    )


def test_every_option_is_tried():
    assert set(VALUES) == set(IN_FILE)
    assert set(BAD_VALUES) == set(NAMES)


@pytest.mark.parametrize("name", IN_FILE)
def test_each_option_from_each_source(name, config):
    """In the file, keys have dashes or underscores."""
    text, value = VALUES[name]
    for loaded in (
        load_settings(parse(f"--{kebab(name)}", text), {}),
        load_settings({}, {variable(name): text}),
        load_settings({}, config(f"{kebab(name)}: {text}\n")),
        load_settings({}, config(f"{name}: {text}\n")),
    ):
        assert getattr(loaded, name) == value


@pytest.mark.parametrize("name", IN_FILE)
def test_a_flag_precedes_the_environment_and_that_the_file(name, config):
    text, value = VALUES[name]
    bad = BAD_VALUES[name][0]
    quoted = bad.replace("\0", r"\0").replace("\t", r"\t")
    file = config(f'{kebab(name)}: "{quoted}"\n')
    assert getattr(load_settings({name: text}, {variable(name): bad, **file}), name) == value
    assert getattr(load_settings({}, {variable(name): text, **file}), name) == value
    assert complaint({}, file).startswith(f"{kebab(name)} in {file['GPUSLICE_CONFIG']}: ")


def test_file_from_flag_wins(tmp_path, config):
    (tmp_path / "other.yaml").write_text("log-level: error\n")
    loaded = load_settings({"config": str(tmp_path / "other.yaml")}, config("log-level: debug\n"))
    assert loaded.log_level == "error"
    assert loaded.config == tmp_path / "other.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_bad_value_is_named_with_its_source_and_the_remedy(name):
    for text in BAD_VALUES[name]:
        flag = complaint({name: text}, {})
        given = "the value" if name in SECRET else shown(text)
        assert flag.startswith(f"--{kebab(name)}: {given} is not ")
        assert complaint({}, {variable(name): text}) == flag.replace(f"--{kebab(name)}", variable(name), 1)


def test_an_empty_flag_is_a_mistake_and_an_empty_variable_is_not_set():
    """Templates leave empty variables behind; an empty flag is mostly an unset variable of a shell."""
    for name in IN_FILE:
        assert f"--{kebab(name)}: '' is not" in complaint({name: ""}, {})
    for name in NAMES:
        assert load_settings({}, {variable(name): " "}) == load_settings({}, {})


@pytest.mark.parametrize("value", ["", "~", "null", '""', "# nothing"])
def test_empty_key_is_not_set(value, config):
    environ = config("".join(f"{kebab(name)}: {value}\n" for name in IN_FILE))
    assert load_settings({"config": None}, environ).poll_interval == 5.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("100ms", 0.1),
        ("1m", 60),
        ("1h", 3600),
        ("5", 5),
        ("0.25", 0.25),
        ("1.5m", 90),
    ],
)
def test_durations(text, seconds):
    assert load_settings({"poll_interval": text, "stale_after": "1h"}, {}).poll_interval == seconds


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":9836", None, 9836),
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("gpu-1.example.com:80", "gpu-1.example.com", 80),
        ("[::]:65535", "::", 65535),
        ("[2001:DB8::1]:0", "2001:db8::1", 0),
    ],
)
def test_addresses(text, host, port):
    assert load_settings({"listen": text}, {}).listen == (host, port)


def test_sockets_follow_the_kubelets_root():
    loaded = load_settings({}, {"GPUSLICE_KUBELET_ROOT": "/{x}", "GPUSLICE_PODS_API_SOCKET": "/p.sock"})
    assert loaded.pod_resources_socket == Path("/{x}/pod-resources/kubelet.sock")
    assert loaded.pods_api_socket == Path("/p.sock")


def test_node_name_of_the_pod_spec_is_the_better_default(config):
    environ = {"NODE_NAME": "from-spec"}
    assert load_settings({}, environ).node_name == "from-spec"
    assert load_settings({}, {"NODE_NAME": ""}).node_name == socket.gethostname()
    assert load_settings({}, environ | config("node-name: from-file\n")).node_name == "from-file"
    assert complaint({}, {"NODE_NAME": "a\nb"}).startswith(r"NODE_NAME: 'a\nb' is not a name")


def test_stale_after_may_equal_the_poll_interval():
    assert load_settings({"poll_interval": "1m", "stale_after": "60"}, {}).stale_after == 60.0


def test_short_stale_after_names_the_option_and_the_least():
    message = complaint({"poll_interval": "10s"}, {"GPUSLICE_STALE_AFTER": "9s"})
    assert message == "GPUSLICE_STALE_AFTER: '9s' is too short: it must be at least the poll interval, 10s"


def test_long_poll_interval_names_the_option_that_was_given():
    message = complaint(parse("--poll-interval", "2m"), {})
    assert message.startswith("--poll-interval: '2m' is too long: it must be at most stale-after, 60s")


def test_repeated_option_from_all_sources(config):
    patterns = tuple(map(re.compile, ("a.*", "b{1}")))
    argv = parse("--resource-pattern", "a.*", "--resource-pattern", "b{1}")
    assert load_settings(argv, {}).resource_pattern == patterns
    assert load_settings({}, {"GPUSLICE_RESOURCE_PATTERN": "a.*, b{1},"}).resource_pattern == patterns
    file = config("resource-pattern: ['a.*', 'b{1}']\n")
    assert load_settings({}, file).resource_pattern == patterns
    assert load_settings({}, config("resource-pattern: []\n")).resource_pattern == ()


def test_several_headers_from_all_sources(config):
    """A comma is part of a value: in the environment line breaks separate headers."""
    headers = (Header("X-Scope-OrgID", "a|b"), Header("X-Roles", "read, write"))
    argv = parse("--prometheus-header", "X-Scope-OrgID: a|b", "--prometheus-header", "X-Roles: read, write")
    assert load_settings(argv, {}).prometheus_header == headers
    for text in (
        "X-Scope-OrgID: a|b\nX-Roles: read, write",
        "\nX-Scope-OrgID:a|b \r\n\n X-Roles:\tread, write\n",
    ):
        assert load_settings({}, {"GPUSLICE_PROMETHEUS_HEADER": text}).prometheus_header == headers
    file = config("prometheus-header: ['X-Scope-OrgID: a|b', 'X-Roles: read, write']\n")
    assert load_settings({}, file).prometheus_header == headers


@pytest.mark.parametrize(
    "text",
    [
        "hunter22",
        "X: hunter22\r\nY: hunter22",
        "X: hunter22é",
        "Host: hunter22",
        "a b: hunter22",
        ": hunter22",
    ],
)
def test_an_error_and_a_repr_do_not_have_the_value_of_a_header(text, config):
    """Values may be secret."""
    file = config(f"prometheus-header: {json.dumps(text)}\n")
    said = [complaint({"prometheus_header": [text]}, {}), complaint({}, file)]
    assert all(
        "hunter22" not in message and "a header such as X-Scope-OrgID: team-a" in message for message in said
    )
    assert "hunter22" not in repr(load_settings({"prometheus_header": ["X-Key: hunter22"]}, {}))


def test_a_prefix_may_end_in_a_slash():
    assert load_settings(parse("--route-prefix", "/nodes/gpuslice/"), {}).route_prefix == "/nodes/gpuslice"


def test_several_may_frame_the_page():
    argv = parse("--frame-ancestors", "self", "--frame-ancestors", "http://grafana:3000")
    assert load_settings(argv, {}).frame_ancestors == ("self", "http://grafana:3000")
    ours = load_settings({}, {"GPUSLICE_FRAME_ANCESTORS": "self,https://a.b-c.example"})
    assert ours.frame_ancestors == ("self", "https://a.b-c.example")


def test_comma_is_part_of_the_pattern_in_flag_and_file(config):
    pattern = (re.compile("a{1,2}"),)
    assert load_settings(parse("--resource-pattern", "a{1,2}"), {}).resource_pattern == pattern
    assert load_settings({}, config("resource-pattern: 'a{1,2}'\n")).resource_pattern == pattern


def test_words_that_yaml_takes_for_booleans_or_numbers_stay_words(config):
    settings = load_settings({}, config("dcgm-names: off\ndcgm-version: 4.9\n"))
    assert (settings.dcgm_names, settings.dcgm_version) == ("off", "4.9")


def test_an_old_label_on_new_names_is_refused():
    """By the source of the label; if it is not given, new names have their own."""
    environ = {"GPUSLICE_DCGM_HOSTNAME_LABEL": "Hostname"}
    with pytest.raises(SettingsError) as refused:
        load_settings({"dcgm_version": "4.9"}, environ)
    assert str(refused.value) == (
        "GPUSLICE_DCGM_HOSTNAME_LABEL: 'Hostname' is not a label of dcgm-exporter 4.9: it must be hostname,"
        " or be left out, with dcgm-version 4.9"
    )
    assert load_settings({"dcgm_version": "4.9", "dcgm_hostname_label": "hostname"}, environ)
    assert load_settings({"dcgm_version": "4.9"}, {})
    for version in ("4.8", "both"):
        assert load_settings({"dcgm_version": version}, environ).dcgm_hostname_label == "Hostname"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("pol-interval", "did you mean poll-interval?"),
        ("poll_intervall", "did you mean poll-interval?"),
        ("config", "there are listen, "),
        ("zzz", "there are listen, "),
        ("<<", "there are listen, "),
    ],
)
def test_unknown_key_is_an_error_with_a_hint(key, hint, config):
    environ = config(f"{key}: 1\n")
    message = complaint({}, environ)
    assert message.startswith(f"{key!r} in {environ['GPUSLICE_CONFIG']}: no such option; ")
    assert hint in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a\n- b\n", "FILE: the file (line 1): must be a mapping, not a list"),
        ("just text", "FILE: the file (line 1): must be a mapping, not a string"),
        ("listen: :1\nlisten: :2\n", "FILE: listen (line 2): this key is repeated"),
        ("poll-interval: 1s\npoll_interval: 2s\n", "poll_interval in FILE: the option is given twice"),
        ("listen: [':1']\n", "listen in FILE: a list is not an address"),
        ('"a\\nb": {}\n', r"FILE: ['a\nb'] (line 1): must be a string, not a mapping"),
        ("listen: {port: 1}\n", "FILE: listen (line 1): must be a string, not a mapping"),
        ("resource-pattern: [[a]]\n", "FILE: resource-pattern[0] (line 1): must be a string, not a list"),
        ("resource-pattern: [a, '(']\n", "resource-pattern in FILE: '(' is not a regular expression"),
        ("? [a]\n: b\n", "FILE: the file (line 1): a key must be text"),
        ("listen: [\n", "FILE: not valid YAML: line 2: "),
        ("a: b: c\n", "FILE: not valid YAML: line 1: "),
        ("a: *nowhere\n", "FILE: not valid YAML: line 1: "),
        ("listen: ':1'\n---\nlisten: ':2'\n", "FILE: not valid YAML: "),
        (b"\xff\xfe\xfd", "FILE: not valid YAML: "),
        (b"a: \x01\n", "FILE: not valid YAML: "),
        ("[" * 2_000, "FILE: not valid YAML: "),
    ],
)
def test_a_bad_file_is_an_error_in_one_line_with_its_path(text, part, config):
    environ = config(text)
    assert part.replace("FILE", environ["GPUSLICE_CONFIG"]) in complaint({}, environ)


@pytest.mark.parametrize("text", ["", "\n", "# only a remark\n", "---\n", "{}"])
def test_empty_file_sets_nothing(text, config):
    assert load_settings({}, config(text)).poll_interval == 5.0


@pytest.mark.parametrize(("name", "reason"), [("absent.yaml", "No such file"), ("", "Is a directory")])
def test_unreadable_file_is_an_error(tmp_path, name, reason):
    message = complaint({}, {"GPUSLICE_CONFIG": str(tmp_path / name)})
    assert message.startswith(f"GPUSLICE_CONFIG: cannot read '{tmp_path / name}': {reason}")
    assert message.endswith("it must be a readable YAML file")


def test_foreign_entries_are_ignored():
    unread = {
        "GPUSLICE_EXPORTER_SERVICE_HOST": "10.0.0.1",
        "GPUSLICE_PORT": "tcp://10.0.0.1:9836",
        "LISTEN": ":1",
    }
    assert load_settings({"command": "serve", "listen": None}, unread) == load_settings({}, {})


def test_flags_that_are_not_given_leave_no_trace():
    assert parse() == {}


def test_markdown_lists_all_options_below_their_commands():
    """Each in one row, in tables of one form."""
    commands, rows = "", {}
    for line in settings_page().splitlines():
        if line.startswith("Options of "):
            commands = line
        elif line.startswith("| `--"):
            rows[line.split("`")[1]] = commands, line
    assert len(NAMES) == sum(line.startswith("| `--") for line in settings_page().splitlines())
    assert set(rows) == {f"--{kebab(name)}" for name in NAMES}
    for field in fields(Settings):
        commands, line = rows[f"--{kebab(field.name)}"]
        assert re.findall(r"`(\w+)`", commands) == list(field.metadata["option"].commands)
        assert line.startswith(f"| `--{kebab(field.name)}` | `{variable(field.name)}` | ")
        assert field.name == "config" or f"| `{kebab(field.name)}` |" in line
    cells = {
        len(re.findall(r"(?<!\\)\|", line)) for line in settings_page().splitlines() if line.startswith("|")
    }
    assert len(cells) == 1


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)), st.binary(max_size=60))
def test_any_text_is_settings_or_an_error_in_one_line(tmp_path_factory, texts, file):
    path = tmp_path_factory.mktemp("settings") / "settings.yaml"
    path.write_bytes(file)
    environ = {variable(name): text for name, text in texts.items()}
    assert "\n" not in outcome(environ | {"GPUSLICE_CONFIG": str(path)})
