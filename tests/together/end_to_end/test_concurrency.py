"""Many scrapers at once: each page is rendered once, and no scrape reads the node or waits for it."""

import asyncio
import gzip
import re
from dataclasses import replace

import pytest

from exporter.demo.scenario import Fault, KubeletFailure, NvmlHang, catalog
from tests.core.golden.page import Page
from tests.together.end_to_end.serving import OPENMETRICS, TEXT, Served, serving
from tests.waiting import wait_until_async

SCRAPERS = 50
FORMS = [(accept, encoding) for accept in (TEXT, OPENMETRICS) for encoding in ("identity", "gzip")]
RENDERED = re.compile(rb"^gpuslice_render_duration_seconds (\S+)$", re.MULTILINE)

Form = tuple[str, str]


async def _scrape(served: Served, form: Form) -> tuple[Form, bytes]:
    headers = {"Accept": form[0], "Accept-Encoding": form[1]}
    async with served.client.get(f"{served.url}/metrics", headers=headers) as response:
        body = await response.read()
        assert response.status == 200
        assert response.headers.get("Content-Encoding", "identity") == form[1]
        assert response.headers["Content-Type"].startswith(form[0])
        return form, gzip.decompress(body) if form[1] == "gzip" else body


async def _scrape_all(served: Served) -> dict[str, set[bytes]]:
    """Scrape many times at once; return the different pages by format."""
    scrapes = (_scrape(served, FORMS[number % len(FORMS)]) for number in range(SCRAPERS))
    pages: dict[str, set[bytes]] = {}
    for (accept, _), page in await asyncio.gather(*scrapes):
        pages.setdefault(accept, set()).add(page)
    return pages


def _calls(served: Served) -> tuple[int, int]:
    return served.node.nvml.total_calls, served.node.kubelet.calls.total()


async def test_a_scrape_reads_nothing() -> None:
    """Neither the driver nor the kubelet is called between two polls."""
    async with serving(catalog.load("t4-timeslicing")) as served:
        for second in (0, 5):
            await served.poll(second)
            before = _calls(served)
            for _ in range(3):
                await _scrape_all(served)
            assert _calls(served) == before
            assert all(before)


async def test_a_page_is_rendered_once_for_each_snapshot() -> None:
    async with serving(catalog.load("t4-timeslicing")) as served:
        renderings = []
        for second in (0, 5):
            await served.poll(second)
            pages = await _scrape_all(served)
            assert {accept: len(made) for accept, made in pages.items()} == {TEXT: 1, OPENMETRICS: 1}
            (rendering,) = {RENDERED.findall(page)[0] for made in pages.values() for page in made}
            renderings.append(rendering)
        assert renderings[0] != renderings[1]


@pytest.mark.slow
async def test_scrapes_go_on_while_polls_come_and_go() -> None:
    """Each page is whole, and of one snapshot."""
    async with serving(catalog.load("t4-timeslicing")) as served:
        await served.poll(0)
        polling = asyncio.create_task(_poll_often(served))
        pages: set[bytes] = set()
        while not polling.done():
            made = await _scrape_all(served)
            pages |= made[OPENMETRICS]
        await polling

    assert len(pages) > 1
    for page in pages:
        assert page.endswith(b"# EOF\n")
        assert page.count(b"\ngpuslice_gpu_up{") == 4
        assert page.count(b"\ngpuslice_snapshot_timestamp_seconds{") == 1


async def _poll_often(served: Served) -> None:
    for second in range(1, 6):
        await served.poll(second)


MEMORY = "nvmlDeviceGetMemoryInfo_v2"


def _hanging_calls(served: Served) -> int:
    of_memory = sum(count for (function, _), count in served.node.nvml.calls.items() if function == MEMORY)
    return of_memory + served.node.kubelet.calls.total()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hang", "collector"),
    [
        (NvmlHang(kind="nvml_hang", at=5, for_=5, function=MEMORY), "nvml"),
        (KubeletFailure(kind="kubelet_hang", at=5, for_=5), "podresources"),
    ],
    ids=["driver", "kubelet"],
)
async def test_a_hang_keeps_no_scraper_waiting(hang: Fault, collector: str) -> None:
    """During a poll that hangs, the page before it is served, and after its deadline one with the failure."""
    scenario = replace(catalog.load("t4-timeslicing"), faults=(hang, replace(hang, at=15)))
    async with serving(scenario) as served:
        await served.poll(0)
        ready, calls = await _scrape_all(served), _hanging_calls(served)
        await served.node.step(5)
        poll = asyncio.create_task(served.poller.poll())
        await wait_until_async(lambda: _hanging_calls(served) > calls, "a call hangs")
        meanwhile = await _scrape_all(served)
        assert not poll.done()
        await served.node.step(10)
        await poll
        served.poller._budget = served.poller._budget.patient(0.5)
        await served.poll(15)
        (page,) = (await _scrape_all(served))[TEXT]
        await served.node.step(20)

    assert meanwhile == ready
    assert Page(page.decode()).value("gpuslice_collector_success", collector=collector) == 0
    assert page.count(b"\ngpuslice_gpu_up{") == 4
    # Without an answer of the kubelet it is unknown whether the container that holds nothing still exists.
    assert page.count(b"\ngpuslice_container_slices{") >= 13
