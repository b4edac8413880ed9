"""A dcgm-exporter as a source of the poll: what it said last holds as long as it answers."""

from aiohttp import web

from tests.core.dcgm_scrape.serving import page, sample, serving
from tests.core.poller.bench import failing, polled
from tests.fake.demo.making import gpu, made


async def test_shares_of_time_leave_with_a_failed_read_and_return():
    scenario = made(gpus=[gpu()])
    uuid = scenario.gpus[0].uuid
    answering = True

    async def answer(_request: web.Request) -> web.StreamResponse:
        if answering:
            return web.Response(body=page(sample("GR_ENGINE_ACTIVE", 0.5, uuid=uuid)))
        return web.Response(status=500)

    async with serving(answer) as url, polled(scenario, dcgm_exporter_url=url) as (_, poller):
        assert (await poller.poll()).gpus[0].reading.profiling.source == "dcgm"
        answering = False
        snapshot = await poller.poll()
        assert failing(snapshot) == {"dcgm"}
        assert snapshot.gpus[0].reading.profiling is None
        answering = True
        assert (await poller.poll()).gpus[0].reading.profiling.source == "dcgm"
