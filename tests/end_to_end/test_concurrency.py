"""Many scrapers at once: each page is made once, and no scrape reads or waits for anything of the node."""

import asyncio
import gzip
import re
from dataclasses import replace

import pytest

from exporter.demo.scenario import Fault, KubeletFailure, NvmlHang, catalog
from tests.end_to_end.serving import OPENMETRICS, TEXT, Served, serving
from tests.golden.page import Page

SCRAPERS = 50
FORMS = [(accept, encoding) for accept in (TEXT, OPENMETRICS) for encoding in ("identity", "gzip")]
RENDERED = re.compile(rb"^gpuslice_render_duration_seconds (\S+)$", re.MULTILINE)
PATIENCE = 5.0

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
    """Scrape from everywhere at once, and give the different pages by format."""
    scrapes = (_scrape(served, FORMS[number % len(FORMS)]) for number in range(SCRAPERS))
    pages: dict[str, set[bytes]] = {}
    for (accept, _), page in await asyncio.gather(*scrapes):
        pages.setdefault(accept, set()).add(page)
    return pages


def _calls(served: Served) -> tuple[int, int]:
    return served.node.nvml.total_calls, served.node.kubelet.calls.total()


@pytest.mark.slow
async def test_a_scrape_reads_nothing() -> None:
    """However many scrape, neither the driver nor the kubelet is called between two polls."""
    async with serving(catalog.load("showcase")) as served:
        for second in (0, 5, 10):
            await served.poll(second)
            before = _calls(served)
            for _ in range(3):
                await _scrape_all(served)
            assert _calls(served) == before
            assert all(before)


@pytest.mark.slow
async def test_a_page_is_made_once_for_each_snapshot() -> None:
    """All scrapers of a snapshot get the same bytes, of one rendering; after the next poll another."""
    async with serving(catalog.load("showcase")) as served:
        renderings = []
        for second in (0, 5):
            await served.poll(second)
            pages = await _scrape_all(served)
            assert {accept: len(made) for accept, made in pages.items()} == {TEXT: 1, OPENMETRICS: 1}
            found = {RENDERED.findall(page)[0] for made in pages.values() for page in made}
            assert len(found) == 1
            renderings.append(found.pop())
        assert renderings[0] != renderings[1]


@pytest.mark.slow
async def test_scrapes_go_on_while_polls_come_and_go() -> None:
    """Pages that are scraped while the node is polled are whole, and each is of one snapshot."""
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
    for second in range(1, 21):
        await served.poll(second)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hang", "collector", "slices"),
    [
        (NvmlHang(kind="nvml_hang", at=5, for_=5, function="nvmlDeviceGetMemoryInfo_v2"), "nvml", 14),
        # Whether the one that holds nothing still does is not known meanwhile.
        (KubeletFailure(kind="kubelet_hang", at=5, for_=5), "podresources", 13),
    ],
    ids=["driver", "kubelet"],
)
async def test_a_hang_keeps_no_scraper_waiting(hang: Fault, collector: str, slices: int) -> None:
    """While a poll hangs the page before it is served at once, and after its deadline one that says so."""
    scenario = replace(catalog.load("t4-timeslicing"), faults=(hang,))
    async with serving(scenario, deadline=1.0) as served:
        await served.poll(0)
        ready = await _scrape_all(served)
        await served.node.step(5)
        poll = asyncio.create_task(served.poller.poll())
        await asyncio.wait({poll}, timeout=0.2)
        meanwhile = await asyncio.wait_for(_scrape_all(served), PATIENCE)
        assert not poll.done()
        await asyncio.wait_for(poll, PATIENCE)
        (page,) = (await asyncio.wait_for(_scrape_all(served), PATIENCE))[TEXT]
        await served.node.step(10)

    assert meanwhile == ready
    assert Page(page.decode()).value("gpuslice_collector_success", collector=collector) == 0
    assert page.count(b"\ngpuslice_gpu_up{") == 4
    assert page.count(b"\ngpuslice_container_slices{") == slices
