"""The program in a real Prometheus: no sample is refused, and the sums hold in queries."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.core.commands.program import TIMEOUT, output_of
from tests.together.end_to_end.programs import SCRAPE_SECONDS, Prometheus, demo, get, prometheus, until
from tests.tools import tool

SCENARIOS = ("showcase", "a100-mig-mixed", "mi300x-cpx", "vgpu-host")
SCRAPES = 3
REFUSED = re.compile(
    r"^prometheus_target_scrapes_(?:sample_duplicate_timestamp|sample_out_of_order|sample_out_of_bounds|"
    r"exceeded_\w+)_total (\S+)$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def urls() -> Iterator[Mapping[str, str]]:
    """Run the program on each scenario; yield the URLs of their metrics by scenario."""
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        demos = [demo(name, "--poll-interval", "1s") for name in SCENARIOS]
        found = at_once.map(running.enter_context, demos)
        yield {name: f"{url}/metrics" for name, url in zip(SCENARIOS, found, strict=True)}


@pytest.fixture(scope="module")
def server(urls: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape every program some times. Queries are of a moment at which no scrape was late."""
    with prometheus(tmp_path_factory.mktemp("prometheus"), urls) as running:

        def scraped() -> bool:
            running.at = time.time() - SCRAPE_SECONDS
            times = running.query(f"count_over_time(up[1m]) >= {SCRAPES} and up == 1")
            return len(times) == len(urls)

        until(scraped, f"each target was scraped {SCRAPES} times")
        yield running


@pytest.mark.slow
def test_every_target_is_up_and_no_sample_is_refused(server: Prometheus) -> None:
    """No series is twice on a page, and no sample is older than the last one."""
    assert len(server.query("up == 1")) == len(SCENARIOS)
    refused = REFUSED.findall(get(f"{server.url}/metrics")[1].decode())
    assert len(refused) >= 3
    assert set(refused) == {"0"}
    distinct = 'count by (job) ({job!="",__name__!~"up|scrape_.+"})'
    as_many = server.query(f"sum by (job) (scrape_samples_scraped) == on (job) {distinct}")
    assert len(as_many) == len(SCENARIOS)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["gpu", "mig"])
def test_memory_adds_up(server: Prometheus, level: str) -> None:
    """On each device with a container, containers + unattributed = used, at any moment."""
    ids, there = ("uuid, mig_uuid", '{mig_uuid!=""}') if level == "mig" else ("uuid", "")
    law = (
        f"sum by (job, {ids}) (gpuslice_container_memory_used_bytes{there})"
        f" + on (job, {ids}) gpuslice_{level}_unattributed_memory_bytes{there}"
        f" == on (job, {ids}) gpuslice_{level}_memory_used_bytes{there}"
    )
    used = f"group by (job, {ids}) (gpuslice_container_memory_used_bytes{there})"
    jobs = {labels[0] for labels in server.query(f"group by (job) ({used})")}
    assert jobs == set(SCENARIOS) - ({"vgpu-host"} if level == "mig" else set())
    assert not server.query(f"{used} unless on (job, {ids}) ({law})")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_info_joins_to_every_sample(server: Prometheus, scenario: str) -> None:
    """The info of a GPU or a container can be joined to each of its samples, one to one."""
    job = f'{{job="{scenario}"}}'
    identity = "namespace, pod, container, uuid, mig_uuid"
    for family, on, info in (
        ("gpuslice_gpu_memory_used_bytes", "uuid", "gpuslice_gpu_info"),
        ("gpuslice_container_slices", identity, "gpuslice_container_info"),
        ("gpuslice_container_slices", "uuid", "gpuslice_gpu_info"),
    ):
        samples = server.query(f"{family}{job}")
        assert samples
        assert len(server.query(f"{family}{job} * on ({on}) group_left (model) {info}{job}")) == len(samples)


@pytest.mark.slow
def test_counters_can_be_increased(server: Prometheus) -> None:
    # OpenMetrics has the type under the name without _total.
    metadata = server.api("metadata", metric="gpuslice_container_entitled_gpu_seconds")
    assert [kind["type"] for kinds in metadata.values() for kind in kinds] == ["counter"]
    held = server.query("increase(gpuslice_container_entitled_gpu_seconds_total[1m])")
    assert held
    assert all(seconds > 0 for seconds in held.values())


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "showcase"])
def test_promtool_has_no_advice_on_native_names(scenario: str) -> None:
    """The text format parses; DCGM's names, which are not ours to choose, are all that has advice."""
    native = _promtool(scenario, "off")
    assert (native.returncode, native.stdout, native.stderr) == (0, b"", b"")
    found = _promtool(scenario, "all")
    assert found.returncode in {0, 3}
    advice = (found.stdout + found.stderr).decode().splitlines()
    assert all(line.startswith(("DCGM_FI_", "DCGM_EXP_")) for line in advice)


def _promtool(scenario: str, dcgm_names: str) -> subprocess.CompletedProcess[bytes]:
    check = [tool("promtool"), "check", "metrics"]
    options = ("--scenario", scenario, "--format", "prometheus", "--dcgm-names", dcgm_names)
    page = output_of("snapshot", *options).encode()
    return subprocess.run(check, input=page, capture_output=True, check=False, timeout=TIMEOUT)
