"""``inspect`` and ``hub`` without a Prometheus that can be asked."""

import pytest

from tests.commands.program import output_of, run, serving
from tests.end_to_end.programs import get


@pytest.mark.slow
@pytest.mark.parametrize("words", [("inspect",), ("hub",)])
def test_without_a_prometheus_it_says_how_to_reach_one(words: tuple[str, ...]) -> None:
    """One line with the option, the variable, and the command that opens a way into the cluster."""
    done = run(*words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    for part in ("--prometheus-url", "GPUSLICE_PROMETHEUS_URL", "port-forward"):
        assert part in done.stderr


@pytest.mark.slow
def test_a_prometheus_that_is_away_is_one_line() -> None:
    """It ends with code 1 and says why."""
    done = run("inspect", "--prometheus-url", "http://127.0.0.1:1")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpuslice-exporter: Prometheus cannot be reached")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("n1", "--advice"), "nodes"),
        (("--advice", "--details"), "--details"),
        (("--namespace", "ml"), "--namespace"),
        (("--output", "csv"), "--output csv"),
    ],
)
def test_inspect_refuses_what_it_would_ignore(words: tuple[str, ...], named: str) -> None:
    """Advice is not by node, and only advice is by namespace or CSV: one line, and exit code 2."""
    done = run("inspect", "--prometheus-url", "http://127.0.0.1:1", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--advice" in done.stderr
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [("--refresh", "0"), ("--window", "a day"), ("--node-url-template", "javascript:alert(1)")],
)
def test_the_hub_refuses_a_value_that_it_cannot_use(option: str, value: str) -> None:
    """The option is named in one line, and the exit code is 2."""
    done = run("hub", "--prometheus-url", "http://127.0.0.1:1", option, value)

    assert done.returncode == 2
    assert option in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_hub_is_served_below_a_prefix_and_framed_by_whom_it_is_told() -> None:
    """Both options do what they do for a node: each page is there at both places, and has the origin."""
    options = ("--route-prefix", "/gpus", "--frame-ancestors", "https://grafana.example.com")
    with serving("hub", "--prometheus-url", "http://127.0.0.1:1", *options) as hub:
        for path in ("fleet", "gpus/", "gpus/fleet", "gpus/api/v1/fleet"):
            headers, body = get(f"{hub.url}{path}", {"Accept": "text/html"})
            assert "frame-ancestors https://grafana.example.com" in headers["Content-Security-Policy"]
            assert b"not read yet" in body or b'"fleet": null' in body
        assert get(f"{hub.url}gpus")[0]["Location"] == "gpus/"


def test_help_says_how_to_reach_a_prometheus() -> None:
    """The help of inspect has the command that opens a way into the cluster."""
    text = " ".join(output_of("inspect", "--help").split())

    assert "kubectl -n monitoring port-forward" in text
    assert "--details" in text
