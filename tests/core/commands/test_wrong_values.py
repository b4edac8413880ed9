"""An invalid value ends a command with exit code 2 and one line, without a traceback."""

import socket

import pytest

from exporter.demo.scenario import catalog
from tests.core.commands.program import nothing_here, run

# The words after the name of the program, and what the line must contain.
WRONG = [
    (["--listen", "nonsense"], "--listen: 'nonsense'"),
    (["serve", "--listen", ":99999"], "--listen: ':99999'"),
    (["--poll-interval", "0"], "--poll-interval: '0'"),
    (["--poll-interval", "10m"], "--poll-interval: '10m'"),
    (["--stale-after", "1s"], "--stale-after: '1s'"),
    (["demo", "--dcgm-names", "maybe"], "--dcgm-names: 'maybe'"),
    (["snapshot", "--log-level", "loud"], "--log-level: 'loud'"),
    (["snapshot", "--log-format", "xml"], "--log-format: 'xml'"),
    (["--resource-pattern", "("], "--resource-pattern: '('"),
    (["--config", "/no/such/file.yaml"], "--config: cannot read '/no/such/file.yaml'"),
    (["--config", "here.yaml"], "--config: 'here.yaml'"),
    (["snapshot", "--format", "xml"], "--format: invalid choice: 'xml'"),
    (["demo", "--seed", "lucky"], "--seed: invalid int value: 'lucky'"),
    (["demo", "--scenario"], "--scenario: expected one argument"),
    (["demo", "--scenario", "/no/such/file.json"], "--scenario: /no/such/file.json"),
    (["snapshot", "--scenario", "/"], "--scenario: /"),
    (["record", "--scenario", "a10-mps", "--output", "/no/such/folder/x"], "--output: cannot write"),
    (["--frobnicate"], "--frobnicate"),
    (
        ["serve", "--prometheus-url", "http://127.0.0.1:1"],
        "serve: --prometheus-url is an option of doctor, hub, inspect, advise, is",
    ),
    (["demo", "--prometheus-ca-file", "/ca.pem"], "demo: --prometheus-ca-file is an option of doctor, hub"),
    (["frobnicate"], "invalid choice: 'frobnicate'"),
    (["serve", "now"], "now"),
    (["hub", "--prometheus-url", "http://127.0.0.1:1", "--refresh", "0"], "--refresh"),
    (["hub", "--prometheus-url", "http://127.0.0.1:1", "--window", "a day"], "--window"),
    (
        ["hub", "--prometheus-url", "http://127.0.0.1:1", "--node-url-template", "javascript:alert(1)"],
        "--node-url-template",
    ),
]


@pytest.mark.parametrize(("words", "named"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_one_line_names_the_option_and_the_value(words: list[str], named: str):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert done.stderr.startswith("gpuslice-exporter")
    assert done.stderr.count("\n") == 1


def test_a_wrong_variable_is_named_as_the_user_wrote_it():
    done = run("snapshot", "--scenario", "a10-mps", GPUSLICE_STALE_AFTER="soon")
    assert done.returncode == 2
    assert done.stderr.startswith("gpuslice-exporter: GPUSLICE_STALE_AFTER: 'soon' is not a duration")


def test_a_wrong_key_of_the_file_is_named_with_a_suggestion(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("poll-intervall: 5s\n")
    done = run("snapshot", "--config", path)
    assert done.returncode == 2
    assert done.stderr == (
        f"gpuslice-exporter: 'poll-intervall' in {path}: no such option; did you mean poll-interval?\n"
    )


@pytest.mark.parametrize("command", ["demo", "snapshot", "doctor", "record"])
def test_an_unknown_scenario_lists_all_scenarios(command: str):
    done = run(command, "--scenario", "showcaes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no scenario 'showcaes'" in done.stderr
    assert not [name for name in catalog.names() if name not in done.stderr]


def test_a_mistake_in_a_scenario_is_named_with_its_place(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"name": "x", "node": {"name": "n"}, "gpus": [{"model": "T"}]}')
    done = run("snapshot", "--scenario", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gpuslice-exporter: --scenario: {path}: gpus[0].architecture: is missing\n"
    path.write_text('{"name": ')
    done = run("snapshot", "--scenario", path)
    assert done.returncode == 2
    assert f"{path}: line 1" in done.stderr


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_taken_port_is_named_with_the_option(command: str, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = nothing_here(tmp_path) if command == "serve" else ["--scenario", "a10-mps"]
        done = run(command, *flags, "--listen", address)
    assert (done.returncode, done.stdout) == (2, "")
    objection = f"cannot listen on {address}: Address already in use; choose another with --listen"
    assert done.stderr == f"gpuslice-exporter: {objection}\n"


def test_a_host_that_cannot_be_resolved_is_named(tmp_path):
    done = run("serve", *nothing_here(tmp_path), "--listen", "no-such-host.invalid:80")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-such-host.invalid:80" in done.stderr
    assert done.stderr.count("\n") == 1
