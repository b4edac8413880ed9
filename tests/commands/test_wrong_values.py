"""What the program says to a value that it cannot use: one line, exit code 2, no traceback."""

import socket

import pytest

from exporter.demo.scenario import catalog
from tests.commands.program import nothing_here, run

# The words after the program's name, and what the line must name.
WRONG = [
    (["--listen", "nonsense"], "--listen: 'nonsense'"),
    (["serve", "--listen", ":99999"], "--listen: ':99999'"),
    (["--listen", "no-such-host.invalid:80"], "no-such-host.invalid:80"),
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
    (["frobnicate"], "invalid choice: 'frobnicate'"),
    (["serve", "now"], "now"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "named"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_one_line(words: list[str], named: str):
    """The option and the value are named, on one line."""
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert done.stderr.startswith("gpuslice-exporter")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_key_of_the_file(tmp_path):
    """A wrong key of the YAML file is named with the file, and a near one is suggested."""
    path = tmp_path / "settings.yaml"
    path.write_text("poll-intervall: 5s\n")
    done = run("snapshot", "--config", path)
    assert done.returncode == 2
    assert done.stderr == (
        f"gpuslice-exporter: 'poll-intervall' in {path}: no such option; did you mean poll-interval?\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["demo", "snapshot", "doctor", "record"])
def test_an_unknown_scenario_lists_those_that_there_are(command: str):
    """Whoever mistypes a name sees all of them."""
    done = run(command, "--scenario", "showcaes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no scenario 'showcaes'" in done.stderr
    for name in catalog.names():
        assert name in done.stderr


@pytest.mark.slow
def test_a_scenario_with_a_mistake(tmp_path):
    """The file and the place in it are named."""
    path = tmp_path / "broken.json"
    path.write_text('{"name": "x", "node": {"name": "n"}, "gpus": [{"model": "T"}]}')
    done = run("snapshot", "--scenario", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gpuslice-exporter: --scenario: {path}: gpus[0].architecture: is missing\n"
    path.write_text('{"name": ')
    done = run("snapshot", "--scenario", path)
    assert done.returncode == 2
    assert f"{path}: line 1" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_port_that_is_taken(command: str, tmp_path):
    """One line names the address and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = nothing_here(tmp_path) if command == "serve" else ["--scenario", "a10-mps"]
        done = run(command, *flags, "--listen", address)
    assert (done.returncode, done.stdout) == (2, "")
    objection = f"cannot listen on {address}: Address already in use; choose another with --listen"
    assert done.stderr == f"gpuslice-exporter: {objection}\n"
