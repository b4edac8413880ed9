"""Answers about one namespace, and tables of a narrow terminal."""

import pytest

from exporter.fleet.amounts import Amount, Units
from exporter.fleet.gpus import Gpu
from exporter.fleet.text import inspection_text
from exporter.fleet.watch import Inspection
from tests.core.commands.program import run
from tests.fleet.answering import Answer, Samples, answering, nothing
from tests.fleet.shown import node

RECORDED: Samples = [({"namespace": name}, 1.0) for name in ("", "ml", "lab")]


def _answer(*, recorded: bool = True, held: bool = False, known: bool = False) -> Answer:
    """Return answers: whether there are records, and whether the namespace has held, or is there."""

    def answer(expression: str) -> Samples:
        if expression.startswith("group by (namespace) (last_over_time(container:gpuslice_last_week:value["):
            return RECORDED if recorded else []
        if expression.startswith("group(max_over_time(gpuslice_container_slices"):
            return [({}, 1.0)] if held else []
        if expression.startswith("group(gpuslice_container_info"):
            return [({}, 1.0)] if known else []
        return []

    return answer


@pytest.mark.parametrize("output", ["text", "json", "csv"])
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (nothing, 1, "this Prometheus has no records for advice: load"),
        (_answer(recorded=False, known=True), 1, "this Prometheus has no records for advice: load"),
        (_answer(held=True, known=True), 1, "this Prometheus has no records for advice: load"),
        (
            _answer(),
            1,
            "nothing is known of a namespace 'xyz'; in the last 7 days slices were held in lab, ml",
        ),
        (_answer(known=True), 0, ""),
    ],
    ids=["no rules", "no records", "no records of its holders", "unknown", "none"],
)
def test_no_records_an_unknown_namespace_and_no_workloads_are_three_answers(
    answer, code, said, output
) -> None:
    with answering(answer) as url:
        done = run("advise", "xyz", "--output", output, "--prometheus-url", url)

    assert done.returncode == code
    assert said in done.stderr
    assert bool(done.stdout) == (code == 0)
    if (code, output) == (0, "text"):
        assert done.stdout == "no workload held a slice in the last 7 days\n"


@pytest.mark.parametrize("command", [("advise", "ml,xyz"), ("inspect", "--advice", "-n", "ml", "-n", "xyz")])
def test_each_of_several_namespaces_has_to_be_known(command) -> None:
    """Here of neither a workload is recorded."""
    with answering(_answer(known=True)) as url:
        done = run(*command, "--prometheus-url", url)
    assert (done.returncode, done.stdout) == (0, "no workload held a slice in the last 7 days\n")
    with answering(_answer()) as url:
        done = run(*command, "--prometheus-url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing is known of a namespace" in done.stderr


def test_without_a_namespace_holders_without_records_are_not_none() -> None:
    """The rules of the hours may be missing, and those of the week not."""
    with answering(_answer(held=True)) as url:
        done = run("advise", "--prometheus-url", url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "no records for advice" in done.stderr


def test_rows_of_inspect_fit_into_the_terminal() -> None:
    """A GPU of a sharing system may have many resources."""
    units = tuple(
        Units(f"example.com/mig-{number}g.{number}0gb", Amount(1, 1), Amount(4, 1)) for number in range(1, 8)
    )
    one = Amount(1.0, 1)
    gpu = Gpu(
        uuid="GPU-1",
        index="0",
        model="NVIDIA H100 80GB HBM3",
        sharing="dra",
        up=True,
        conditions=("needs_reset", "link_degraded"),
        slices=Units(""),
        units=units,
        memory_total=one,
        memory_held=one,
        memory_used=one,
        compute_held=one,
        compute_used=one,
    )
    inspection = Inspection(at=0.0, nodes=((node("gpu-node-1"), (gpu,)),), gpus=True)
    wide, narrow = (
        inspection_text(inspection, details=False, width=width).partition("\n\nTotal")[0]
        for width in (None, 100)
    )

    assert max(map(len, wide.splitlines())) > 200
    assert max(map(len, narrow.splitlines())) <= 100
    for name in ("mig-1g.10gb", "mig-7g.70gb", "gpu-node-1"):
        assert name in narrow
