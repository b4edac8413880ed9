"""The real program scraped by a real Prometheus: nothing is refused, and the sums hold in its queries."""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.commands.program import output_of
from tests.end_to_end.programs import Prometheus, TextOnly, demo, get, program, prometheus, until
from tests.parameters import mostly_slow

SCENARIOS = ("showcase", "t4-timeslicing", "a100-mig-mixed", "h100-mixed", "mi300x-cpx", "vgpu-host")
FORMATS = ("openmetrics", "text")
SCRAPES = 3
REFUSED = re.compile(
    r"^prometheus_target_scrapes_(?:sample_duplicate_timestamp|sample_out_of_order|sample_out_of_bounds|"
    r"exceeded_\w+)_total (\S+)$",
    re.MULTILINE,
)

each_job = pytest.mark.parametrize("job", [f"{name}-{form}" for name in SCENARIOS for form in FORMATS])


@pytest.fixture(scope="module")
def between() -> Iterator[TextOnly]:
    """Run the program on each scenario, with a go-between that has their pages as text."""
    program("prometheus")
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        demos = [demo(name, "--poll-interval", "1s") for name in SCENARIOS]
        urls = at_once.map(running.enter_context, demos)
        pages = {name: f"{url}/metrics" for name, url in zip(SCENARIOS, urls, strict=True)}
        yield running.enter_context(TextOnly(pages).running())


@pytest.fixture(scope="module")
def server(between: TextOnly, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape every program in both formats, some times each."""
    jobs = {f"{name}-openmetrics": url for name, url in between.pages.items()}
    jobs |= {f"{name}-text": f"{between.url}/{name}" for name in between.pages}
    with prometheus(tmp_path_factory.mktemp("prometheus"), jobs) as running:
        scraped = f"count_over_time(up[1m]) >= {SCRAPES}"
        until(lambda: len(running.query(scraped)) == len(jobs), f"each target was scraped {SCRAPES} times")
        yield running


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_the_formats_are_the_two_that_are_meant(between: TextOnly) -> None:
    """Prometheus asks for OpenMetrics and gets it; the go-between has the text format."""
    until(lambda: between.accept, "a scrape")
    for url in between.pages.values():
        direct, _ = get(url, {"Accept": between.accept})
        assert direct["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    for name in between.pages:
        text, _ = get(f"{between.url}/{name}")
        assert text["Content-Type"].startswith("text/plain; version=0.0.4")


@pytest.mark.slow
def test_every_target_is_up(server: Prometheus) -> None:
    """All scrapes succeeded; no page had a part that Prometheus does not understand."""
    targets = server.api("targets")["activeTargets"]

    assert len(targets) == len(SCENARIOS) * len(FORMATS)
    assert {(target["health"], target["lastError"]) for target in targets} == {("up", "")}
    assert set(server.query("min_over_time(up[1m])").values()) == {1.0}


@pytest.mark.slow
def test_no_sample_was_refused(server: Prometheus) -> None:
    """No series stood twice on a page, and none went back in time."""
    _, own = get(f"{server.url}/metrics")
    refused = REFUSED.findall(own.decode())

    assert len(refused) >= 3
    assert set(refused) == {"0"}
    distinct = 'count by (job) ({job!="",__name__!~"up|scrape_.+"})'
    as_many = server.query(f"sum by (job) (scrape_samples_scraped) == on (job) {distinct}")
    assert len(as_many) == len(SCENARIOS) * len(FORMATS)


@pytest.mark.slow
@each_job
def test_memory_adds_up_on_gpus(server: Prometheus, job: str) -> None:
    """Containers + unattributed = used, on every GPU that a container uses."""
    law = (
        f'sum by (uuid) (gpuslice_container_memory_used_bytes{{job="{job}"}})'
        f' + on (uuid) gpuslice_gpu_unattributed_memory_bytes{{job="{job}"}}'
        f' == on (uuid) gpuslice_gpu_memory_used_bytes{{job="{job}"}}'
    )
    used = f'group by (uuid) (gpuslice_container_memory_used_bytes{{job="{job}"}})'

    assert server.query(used)
    assert not server.query(f"{used} unless on (uuid) ({law})")


@pytest.mark.slow
@each_job
def test_memory_adds_up_on_mig_devices(server: Prometheus, job: str) -> None:
    """Containers + unattributed = used, on every MIG device that a container uses."""
    there = f'{{job="{job}",mig_uuid!=""}}'
    law = (
        f"sum by (uuid, mig_uuid) (gpuslice_container_memory_used_bytes{there})"
        f" + on (uuid, mig_uuid) gpuslice_mig_unattributed_memory_bytes{there}"
        f" == on (uuid, mig_uuid) gpuslice_mig_memory_used_bytes{there}"
    )
    used = f"group by (uuid, mig_uuid) (gpuslice_container_memory_used_bytes{there})"

    assert bool(server.query(used)) == (not job.startswith(("t4", "vgpu")))
    assert not server.query(f"{used} unless on (uuid, mig_uuid) ({law})")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_info_joins_to_every_sample(server: Prometheus, scenario: str) -> None:
    """What describes a GPU or a container can be joined to each of its samples, one to one."""
    job = f'{{job="{scenario}-openmetrics"}}'
    identity = "namespace, pod, container, uuid, mig_uuid"
    for family, on, info in (
        ("gpuslice_gpu_memory_used_bytes", "uuid", "gpuslice_gpu_info"),
        ("gpuslice_container_slices", identity, "gpuslice_container_info"),
        ("gpuslice_container_slices", "uuid", "gpuslice_gpu_info"),
    ):
        bare = server.query(f"{family}{job}")
        joined = server.query(f"{family}{job} * on ({on}) group_left (model) {info}{job}")
        assert bare
        assert len(joined) == len(bare)


@pytest.mark.slow
def test_counters_can_be_increased(server: Prometheus) -> None:
    """What adds up is a counter to Prometheus, and its increase is there after some scrapes."""
    metadata = server.api("metadata")
    counters = [name for name in metadata if name.startswith("gpuslice_") and name.endswith("_total")]

    assert counters
    assert {kind["type"] for name in counters for kind in metadata[name]} == {"counter"}
    held = server.query("increase(gpuslice_container_entitled_gpu_seconds_total[1m])")
    assert held
    assert all(seconds > 0 for seconds in held.values())


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_promtool_has_no_advice_on_native_names(scenario: str) -> None:
    """The page without DCGM's names parses, and its linter finds nothing."""
    found = _promtool(scenario, "off")

    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


@pytest.mark.parametrize("scenario", mostly_slow(SCENARIOS, "t4-timeslicing"))
def test_promtool_parses_dcgm_names(scenario: str) -> None:
    """Names that are not ours to choose are all that the linter has advice on."""
    found = _promtool(scenario, "all")

    advice = (found.stdout + found.stderr).decode().splitlines()
    assert found.returncode in {0, 3}
    assert all(line.startswith(("DCGM_FI_", "DCGM_EXP_")) for line in advice)


def _promtool(scenario: str, dcgm_names: str) -> subprocess.CompletedProcess[bytes]:
    check = [program("promtool"), "check", "metrics"]
    options = ("--scenario", scenario, "--format", "prometheus", "--dcgm-names", dcgm_names)
    page = output_of("snapshot", *options).encode()
    return subprocess.run(check, input=page, capture_output=True, check=False, timeout=60)
