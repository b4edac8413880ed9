"""Nodes of ``inspect`` for some namespaces: their holders only, of sums that are of all."""

import json

import pytest

from tests.core.commands.program import run
from tests.fleet.answering import GPU, HOLDER, Answer, Samples, answering, of_node

LAB = {**HOLDER, "namespace": "lab", "pod": "nb-0"}


def _answers(*, complete: bool = True, recorded: tuple[str, ...] = (), there: tuple[str, ...] = ()) -> Answer:
    """Return answers about node n1, with a GPU that ml and lab hold.

    ``complete``: whether it is known that these are all; ``recorded``: namespaces that held one this week;
    ``there``: namespaces of the cluster.
    """
    holders = [(HOLDER, 1.0), (LAB, 1.0)]
    number = 2.0 if complete else 3.0
    series: dict[str, Samples] = {
        r"gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "time-slicing"}, 1.0)],
        r"gpuslice_gpu_holders": [(GPU, number)],
        r"gpuslice_gpu_memory_used_bytes": [(GPU, 300.0)],
        r"gpuslice_container_(info|slices)": holders,
        r"group by \(namespace\) \(namespace:gpuslice_containers": [
            ({"namespace": n}, 1.0) for n in ("ml", "lab")
        ],
        r"group by \(namespace\) \(last_over_time": [({"namespace": name}, 1.0) for name in ("", *recorded)],
    }
    answer = of_node(series)

    def of(expression: str) -> Samples | str:
        if expression.startswith("group(gpuslice_container_info"):
            return [({}, 1.0)] if any(f'"{name}"' in expression for name in there) else []
        return answer(expression)

    return of


def _inspected(answer: Answer, *arguments: str) -> dict:
    with answering(answer) as url:
        done = run("inspect", *arguments, "--output", "json", "--prometheus-url", url)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def _pods(document: dict) -> list[str]:
    (one,) = document["nodes"]
    (gpu,) = one["devices"]
    return [holder["pod"] for holder in gpu["holders"]]


@pytest.mark.parametrize(
    ("arguments", "pods"),
    [
        (("--namespace", "ml"), ["train-0"]),
        (("-n", "lab"), ["nb-0"]),
        (("-n", "lab", "--namespace", "ml"), ["train-0", "nb-0"]),
        (("-n", "lab, ml"), ["train-0", "nb-0"]),
        (("n1", "-n", "lab", "--details"), ["nb-0"]),
    ],
)
def test_inspect_has_the_holders_of_a_namespace_only(arguments, pods) -> None:
    """All sums are those of the whole node, and the answer says which namespaces it has."""
    narrowed, whole = _inspected(_answers(), *arguments), _inspected(_answers(), "--details")

    assert sorted(_pods(narrowed)) == sorted(pods)
    assert sorted(narrowed.pop("only_namespaces")) == sorted(
        {"nb-0": "lab", "train-0": "ml"}[pod] for pod in pods
    )
    assert whole.pop("only_namespaces") is None
    for document in (narrowed, whole):
        for one in document["nodes"][0]["devices"]:
            del one["holders"]
    assert narrowed == whole


def test_text_says_which_holders_are_listed() -> None:
    with answering(_answers()) as url:
        done = run("inspect", "--namespace", "lab", "--prometheus-url", url)

    assert done.returncode == 0
    assert "nb-0" in done.stdout
    assert "train-0" not in done.stdout
    assert "Only holders in lab are listed. Nodes, GPUs and totals are of all namespaces." in done.stdout
    assert done.stdout.splitlines()[0].split()[:2] == ["NODE", "GPUS"]


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ({}, 1, "nothing is known of a namespace 'ops'; GPUs are held in lab, ml"),
        ({"there": ("ops",)}, 0, "No known pod in ops holds or uses a GPU."),
        ({"recorded": ("ops",)}, 0, "No known pod in ops holds or uses a GPU."),
        ({"there": ("ops",), "complete": False}, 0, "Holders are not known on n1."),
    ],
    ids=["unknown", "without holders", "without holders today", "not known"],
)
def test_an_unknown_namespace_none_held_and_not_known_are_three_answers(answers, code, said) -> None:
    with answering(_answers(**answers)) as url:
        done = run("inspect", "--namespace", "ops", "--prometheus-url", url)

    assert done.returncode == code
    assert said in (done.stderr if code else done.stdout)
    assert bool(done.stdout) == (code == 0)


def test_one_misspelt_of_several_namespaces_is_an_error() -> None:
    with answering(_answers()) as url:
        done = run("inspect", "--namespace", "ml,mll", "--prometheus-url", url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "namespace 'mll'" in done.stderr


@pytest.mark.parametrize("names", ["", "ml,", ",", " "])
def test_an_empty_name_is_an_error_of_usage(names) -> None:
    """It is mostly an unset variable of a shell."""
    done = run("inspect", "--namespace", names, "--prometheus-url", "http://localhost:1")

    assert done.returncode == 2
    assert "--namespace" in done.stderr
