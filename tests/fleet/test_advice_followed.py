"""A simulated week of workloads that follow advice, and of the examples in docs/advice.md."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from exporter.advice.model import Advice
from exporter.fleet.cluster_advice import read_advice
from exporter.formats.advice import advice_paragraphs
from tests.core.advice.simulated import PROFILES, Run, drawn, gib, stays_within
from tests.core.commands.program import run as call
from tests.fleet.week import WEEK, Holder, ask, devices, mig_device, node, on, week
from tests.together.end_to_end.programs import Prometheus

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs/advice.md"
HALF, OTHERS = WEEK // 2, 100
RANDOM = [
    on(drawn(Random(seed), (330, 600, WEEK)[seed % 3]), f"drawn-{seed}", OTHERS + seed)  # noqa: S311
    for seed in range(12)
]
PROFILE = "3g.40gb"
LIMITS = {"memory_entitled": gib(24), "compute_entitled": 0.5}


def _run(pod: str, gpu: int, low: float, high: float, compute: float, **entitled: float) -> Run:
    used = {"memory": [gib(low), gib(high)] * HALF, "compute": [compute] * WEEK}
    return Run(pod=pod, gpu=gpu, **used, **entitled)


def examples() -> Iterator[Holder]:
    """Yield the holders of the examples."""
    (size,) = (profile.memory or 0 for profile in PROFILES if profile.name == PROFILE)
    chat = _run("chat", 0, 4, 6.1, 0.08, memory_entitled=size, compute_entitled=3 / 7)
    chat = replace(chat, sm=chat.compute)
    yield Holder(run=chat, sharing="mig", isolation="hard", mig_uuid="MIG-1")
    for name in "abcd":
        sharer = _run(f"notebook-{name}", 1, 5, 6, 0.1, memory_entitled=gib(19.9), compute_entitled=0.25)
        yield Holder(run=sharer, sharing="time-slicing")
    yield Holder(run=_run("rank", 2, 3, 4, 0.2, **LIMITS), sharing="mps", isolation="soft")
    yield Holder(run=_run("search", 3, 5, 9, 0.3, **LIMITS), sharing="hami", isolation="soft")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Serve the week of the examples, and of random workloads in another namespace."""
    others = [Holder(run=run, begin=WEEK - len(run.memory), namespace="drawn") for run in RANDOM]
    everyone = [*examples(), *others]
    series = [stored for holder in everyone for stored in holder.series()]
    series += [*devices(everyone, {}), *mig_device("MIG-1", 0, PROFILE), *node()]
    with week(tmp_path_factory.mktemp("week") / "prometheus", series) as running:
        yield running


def _advice(server: Prometheus, namespace: str) -> Sequence[Advice]:
    return ask(server, lambda client: read_advice(client, namespace)).advices


def test_a_workload_that_follows_its_verdict_does_not_exceed_it(server: Prometheus) -> None:
    """Random workloads, by the windows of Prometheus; both kinds of slices are among the options."""
    runs = {run.pod: run for run in RANDOM}
    options = [
        (runs[advice.window.workload], option)
        for advice in _advice(server, "drawn")
        for option in advice.options
        if option.verdict != "keep"
    ]

    assert {option.verdict for _, option in options} == {"mig_profile", "shared_gpu"}
    assert [(run.pod, option) for run, option in options if not stays_within(run, option)] == []


def test_the_examples_are_what_the_command_prints(server: Prometheus) -> None:
    text = DOCS.read_text()
    done = call("advise", "ml", "--prometheus-url", server.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in text
    facts = {advice.window.workload: advice_paragraphs(advice)[-1] for advice in _advice(server, "ml")}
    words = " ".join(text.split())
    for workload in facts.keys() - {""}:
        peak, p95, *_ = facts[workload].split("; ")
        assert f"`{workload}`: {peak[0].lower()}{peak[1:]}; {p95}." in words
