"""Advice by a real Prometheus with the series and records of a simulated week."""

import asyncio
import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator, Mapping

import pytest
from playwright.async_api import async_playwright

from exporter.advice import advise
from exporter.advice.model import Advice
from exporter.fleet.advice_windows import AdviceWindows, advice_windows
from tests.core.advice.simulated import DAY, H100_BYTES, PROFILES, STEP, Run, gib
from tests.core.commands.program import command, environment, serving
from tests.core.commands.program import run as call
from tests.fleet.week import WEEK, Holder, ask, devices, end, mig_device, node, on, week
from tests.page.browser.axe import faults
from tests.page.browser.site import NARROW, PHONE, WIDE, chromium, looking, overflow
from tests.together.end_to_end.programs import Prometheus, get, until

pytestmark = pytest.mark.slow

HALF, HOUR = WEEK // 2, 3600.0
SAWTOOTH = [gib(6 + step % 11) for step in range(WEEK)]
BURSTY = [1.0 if step % 33 == 0 else 0.2 for step in range(WEEK)]
LIMITED = {"memory_entitled": gib(20), "compute_entitled": 0.5}
ALMOST_10 = [gib(9.6) if step % 50 == 0 else gib(5 + step % 4) for step in range(WEEK)]
OFF = {"label_gpuslice_exporter_advice": "off"}
JOBS, LONGEST = 40, 7
G40 = next(profile.memory for profile in PROFILES if profile.name == "3g.40gb")
HELD = {
    "sawtooth": Run(memory=SAWTOOTH, compute=[0.3] * WEEK, sm=[0.15] * WEEK),
    "jax": Run(memory=[int(0.75 * H100_BYTES)] * WEEK, compute=[0.4] * WEEK),
    "vllm": Run(memory=[int(0.9 * H100_BYTES)] * WEEK, compute=[0.1, 0.9] * HALF),
    "bursty": Run(memory=[gib(8 + step % 3) for step in range(WEEK)], compute=BURSTY, sm=[0.9] * WEEK),
    "idle": Run(memory=[gib(4), gib(5)] * HALF, compute=[0.0] * WEEK),
    "opted-out": Run(memory=[gib(4), gib(5)] * HALF, compute=[0.0] * WEEK),
    "rest": Run(memory=[gib(4), gib(5)] * HALF, compute=[0.4] * WEEK),
    "unmeasured": Run(memory=[gib(4), gib(5)] * HALF, compute=[0.0] * WEEK, compute_coverage=0.94),
}
GPUS = {name: gpu for gpu, name in enumerate(HELD)}
TURNS, LIMITS, FOUR, CRON, MIG, YOUNG = 20, 21, 22, 30, 31, 32


def holders() -> Iterator[Holder]:
    """Yield all holders of the week."""
    for name, run in HELD.items():
        labels = OFF if name == "opted-out" else {}
        yield Holder(run=on(run, name, GPUS[name]), labels=labels)
    for turn in range(3):
        run = Run(
            memory=[gib(5), gib(6)] * HALF,
            # The three compute in different steps, so their sum is as large as each.
            compute=[0.3 if step % 3 == turn else 0.0 for step in range(WEEK)],
            memory_entitled=gib(20),
            compute_entitled=0.25,
        )
        yield Holder(run=on(run, f"turn-{turn}", TURNS), sharing="time-slicing")
    for sharing, top, share in (("hami", 5.0, 0.1), ("mps", 5.0, 0.12)):
        run = Run(memory=[gib(2), gib(top)] * HALF, compute=[share] * WEEK, **LIMITED)
        yield Holder(run=on(run, sharing, LIMITS), sharing=sharing, isolation="soft")
    run = Run(memory=[gib(3), int(0.985 * gib(20))] * HALF, compute=[0.4] * WEEK, **LIMITED)
    yield Holder(run=on(run, "at-limit", LIMITS), sharing="hami", isolation="soft")
    for gpu in range(4):
        share = 0.0 if gpu == 3 else 0.7
        run = Run(memory=[gib(30), gib(50)] * HALF, compute=[share] * WEEK, sm=[0.5] * WEEK)
        yield Holder(run=on(run, "four", FOUR + gpu))
    for job in range(JOBS):
        memory = [gib(2), gib(12 if job == LONGEST else 9), gib(5), gib(3)]
        name = f"nightly-{29_000_000 + job}"
        run = on(Run(memory=memory, compute=[0.5] * 4, sm=[0.1] * 4), f"{name}-x7k2p", CRON)
        yield Holder(run=run, begin=5 + job * 50, owner=("Job", name))
    entitled = {"memory_entitled": G40, "compute_entitled": 3 / 7}
    run = Run(memory=ALMOST_10, compute=[0.1] * WEEK, sm=[0.2] * WEEK, **entitled)
    yield Holder(run=on(run, "mig", MIG), sharing="mig", isolation="hard", mig_uuid="MIG-1")
    yield Holder(run=on(Run(memory=[gib(4)] * 200, compute=[0.4] * 200), "young", YOUNG), begin=WEEK - 200)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Serve the week and its records."""
    everyone = list(holders())
    series = [stored for holder in everyone for stored in holder.series()]
    series += [*devices(everyone, {GPUS["rest"]: 0.06}), *mig_device("MIG-1", MIG, "3g.40gb"), *node()]
    with week(tmp_path_factory.mktemp("week") / "prometheus", series) as running:
        yield running


def windows(server: Prometheus, namespace: str = "", after: float = 0.0) -> AdviceWindows:
    """Return the windows at a time after the end of the week."""
    return ask(server, lambda client: advice_windows(client, end() + after, namespace))


@pytest.fixture(scope="module")
def advices(server: Prometheus) -> Mapping[str, Advice]:
    """Return the advice by workload; that on the GPU with time-slicing is at ""."""
    read = windows(server)
    assert read.problems == ()
    return {window.workload: advise(window) for window in read.windows}


@pytest.mark.parametrize(
    ("workload", "verdict"),
    [
        ("sawtooth", ("mig_profile", "1g.20gb")),
        ("bursty", ("shared_gpu", "1/4 of a shared GPU")),
        ("idle", ("release", "nothing: it never computed")),
        ("four", ("fewer_gpus", "3 GPUs")),
        ("nightly", ("mig_profile", "1g.20gb")),
        ("mig", ("smaller_profile", "1g.20gb")),
        ("hami", ("smaller_limit", "5888 MiB nvidia.com/gpumem and 12 % nvidia.com/gpucores")),
        ("mps", ("smaller_limit", "5888 MiB pinned device memory of each client and 15 % active threads")),
        ("", ("replicas", "8 replicas")),
    ],
)
def test_the_verdict_is_that_of_the_simulated_steps(
    advices: Mapping[str, Advice], workload: str, verdict: tuple[str, str]
) -> None:
    """tests/core/advice has the same for these workloads without Prometheus."""
    advice = advices[workload]

    assert advice.reason is None, advice.why
    assert (advice.options[0].verdict, advice.options[0].target) == verdict


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ("jax", "preallocated"),
        ("vllm", "preallocated"),
        ("opted-out", "opted_out"),
        ("rest", "shared_rest"),
        ("at-limit", "limit_hit"),
        ("young", "young"),
    ],
)
def test_the_reason_for_no_advice(advices: Mapping[str, Advice], workload: str, reason: str) -> None:
    assert (advices[workload].reason, advices[workload].options) == (reason, ())


def test_a_holder_not_measured_for_an_hour_of_each_day_is_not_released(advices: Mapping[str, Advice]) -> None:
    """It may have computed then."""
    assert "release" not in [option.verdict for option in advices["unmeasured"].options]


def test_the_use_in_a_window_is_that_of_the_simulated_steps(advices: Mapping[str, Advice]) -> None:
    """The peak exactly, times within an hour at either end, compute within the resolution of drivers."""
    for name, run in HELD.items():
        (use,) = advices[name].window.uses
        truth = run.use()
        assert use.memory_peak == truth.memory_peak, name
        assert use.held == pytest.approx(truth.held, rel=0.02), name
        assert use.memory_coverage == pytest.approx(truth.memory_coverage, abs=0.01), name
        assert use.compute_coverage == pytest.approx(truth.compute_coverage, abs=0.01), name
        assert use.computing == pytest.approx(truth.computing, abs=24 * STEP), name
        assert use.compute_p95 == (None if truth.compute_p95 is None else pytest.approx(truth.compute_p95))
        # A sample in each step makes 11 steps of an hour.
        assert use.compute_mean == pytest.approx(truth.compute_mean or 0.0, abs=0.05), name


def test_the_ended_jobs_of_a_cron_job_are_one_workload(advices: Mapping[str, Advice]) -> None:
    window = advices["nightly"].window

    assert window.pods == JOBS
    assert window.held == pytest.approx(JOBS * 4 * STEP, rel=0.25)
    assert window.span > 7 * DAY - 2 * HOUR


def test_a_note_says_that_the_use_of_video_engines_is_unknown(advices: Mapping[str, Advice]) -> None:
    notes = advices["sawtooth"].options[0].notes

    assert "use of video and JPEG engines unknown: a profile may have none" in notes


def test_a_namespace_has_the_same_windows_as_in_the_cluster(server: Prometheus) -> None:
    assert windows(server, "ml") == windows(server)
    assert windows(server, "other") == AdviceWindows((), ())


def test_the_owner_of_a_pod_is_known_as_long_as_the_newest_record_has_the_pod(server: Prometheus) -> None:
    """The record may be two hours old; without its owner the first job would be a workload of its own."""
    now, later = (
        {window.workload for window in windows(server, after=after).windows} for after in (0.0, HOUR)
    )

    assert later == now


def test_the_command_prints_the_advice_that_frees_most_first(server: Prometheus) -> None:
    done = call("advise", "--prometheus-url", server.url)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "WORKLOAD NOW WOULD FIT GPUS FREED SEEN MEASURED CONFIDENCE"
    assert {line.split()[0] for line in lines[1:3]} == {"ml/four/main", "ml/idle/main"}
    assert "unknown: its peak is 0.75 of the memory, as of programs that take it" in done.stdout
    assert [line.split(":")[0] for line in lines[-3:]] == [
        "Could be freed",
        "No advice on 6 workloads, which are in no total",
        "Names of processes are not in Prometheus",
    ]
    inspected = call("inspect", "--advice", "--prometheus-url", server.url).stdout
    # The time since a pod started grows between the two.
    age = re.compile(r"\d+ h \d+ min")
    assert age.sub("", inspected).split() == age.sub("", done.stdout).split()


def test_the_plugin_of_kubectl_advises_on_a_namespace(server: Prometheus) -> None:
    main = "import sys; from exporter.cli import kubectl_main; sys.exit(kubectl_main())"
    env = environment(GPUSLICE_PROMETHEUS_URL=server.url)

    def advise(*words: str) -> subprocess.CompletedProcess[str]:
        start = [command()[0], "-c", main, "advise", *words]
        return subprocess.run(start, capture_output=True, text=True, check=False, env=env)

    def output(*words: str) -> str:
        done = advise(*words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    document = json.loads(output("ml", "--output", "json", "--gpu-hour-price", "2"))
    lines = list(csv.DictReader(io.StringIO(output("ml", "-o", "csv"))))
    assert [advice["workload"] for advice in document["advice"]] == [
        line["workload"] or None for line in lines
    ]
    assert {line["cluster"] for line in lines} == {"west"}
    freed = document["savings"]["could_be_freed"]
    # The commands do not run at the same time.
    freed_by_csv = sum(max(float(line["gpus_freed"] or 0), 0) for line in lines)
    assert freed["gpus"] == pytest.approx(freed_by_csv, rel=1e-2)
    assert freed["cost_per_day"] == pytest.approx(48 * freed["gpus"])
    assert document["savings"]["without_advice"]["preallocated"] == 2
    assert output("empty") == "no workload held a slice in the last 7 days\n"
    unknown = advise("other")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.endswith("'other'; in the last 7 days slices were held in ml\n")


def test_the_hub_shows_the_advice(server: Prometheus) -> None:
    """On its page, which is readable on phones and accessible by axe, and in its API."""
    with serving("hub", "--prometheus-url", server.url) as hub:
        until(lambda: b'"advice"' in get(f"{hub.url}api/v1/advice")[1], "the first advice")
        document = json.loads(hub.get("api/v1/advice"))
        assert {advice["workload"] for advice in document["advice"]} >= {"idle", "nightly", None}
        assert hub.get("api/v1/advice?format=csv").startswith("cluster,namespace,workload,container")
        asyncio.run(_browse(hub.url))


async def _browse(url: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for scheme, size in (("light", WIDE), ("dark", PHONE), ("light", NARROW)):
            async with looking(browser, url, viewport=size, color_scheme=scheme) as (page, _):
                await page.goto(url)
                cells = await page.locator("#advice th a").all()
                links = {await cell.get_attribute("href") for cell in cells}
                assert links >= {"http://n1:9836/holder/ml/idle/main", f"http://n1:9836/gpu/GPU-{TURNS}"}
                # The pods of the cron job have ended.
                unlinked = await page.locator("#advice tbody th:not(:has(a))").all_inner_texts()
                assert unlinked == ["ml/nightly main"]
                assert await faults(page) == [], (scheme, size)
                assert await overflow(page) <= 0, (scheme, size)
        await browser.close()
