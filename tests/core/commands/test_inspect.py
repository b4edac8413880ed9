"""``inspect`` and ``hub`` if no Prometheus can be reached."""

import pytest

from tests.core.commands.program import output_of, run, serving
from tests.together.end_to_end.programs import get

AWAY = ("--prometheus-url", "http://127.0.0.1:1")


@pytest.mark.parametrize("command", ["inspect", "hub"])
def test_without_a_url_the_error_says_how_to_reach_a_prometheus(command: str) -> None:
    done = run(command)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    for part in ("--prometheus-url", "GPUSLICE_PROMETHEUS_URL", "port-forward"):
        assert part in done.stderr


def test_a_prometheus_that_does_not_answer_is_exit_code_1_and_one_line() -> None:
    done = run("inspect", *AWAY)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpuslice-exporter: Prometheus cannot be reached")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("n1", "--advice"), "nodes"),
        (("--advice", "--details"), "--details"),
    ],
)
def test_inspect_refuses_options_that_it_would_ignore(words: tuple[str, ...], named: str) -> None:
    """Advice is not by node."""
    done = run("inspect", *AWAY, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--advice" in done.stderr
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_hub_has_a_route_prefix_and_frame_ancestors() -> None:
    """Each page is there with and without the prefix, and allows the origin to frame it."""
    options = ("--route-prefix", "/gpus", "--frame-ancestors", "https://grafana.example.com")
    with serving("hub", *AWAY, *options) as hub:
        for path in ("fleet", "gpus/", "gpus/fleet", "gpus/api/v1/fleet"):
            headers, body = get(f"{hub.url}{path}", {"Accept": "text/html"})
            assert "frame-ancestors https://grafana.example.com" in headers["Content-Security-Policy"]
            assert b"not read yet" in body or b'"fleet": null' in body
        assert get(f"{hub.url}gpus")[0]["Location"] == "gpus/"


def test_help_says_how_to_reach_a_prometheus() -> None:
    text = " ".join(output_of("inspect", "--help").split())

    assert "kubectl -n monitoring port-forward" in text
    assert "--details" in text
