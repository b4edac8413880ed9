"""A real HTTP server in place of a dcgm-exporter."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer | bytes, **headers: str) -> AsyncIterator[str]:
    """Serve a page, or the answers of a handler, at /metrics on a free port; yield its URL."""

    async def hand_out(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=answer, headers=headers)

    app = web.Application()
    app.router.add_get("/metrics", hand_out if isinstance(answer, bytes) else answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    finally:
        await runner.cleanup()


def page(*samples: str) -> bytes:
    """Return a page of samples, each family with the header that dcgm-exporter prints."""
    names = dict.fromkeys(sample.partition("{")[0] for sample in samples)
    lines: list[str] = []
    for name in names:
        lines += [f"# HELP {name} Ratio of something.", f"# TYPE {name} gauge"]
        lines += [sample for sample in samples if sample.partition("{")[0] == name]
    return "".join(f"{line}\n" for line in lines).encode()


def sample(field: str, value: object, uuid: str = "GPU-1", **labels: object) -> str:
    """Return a line as dcgm-exporter prints it, for a field of profiling, or for any by its full name."""
    name = field if field.upper().startswith("DCGM_") else f"DCGM_FI_PROF_{field}"
    of_sample = {"gpu": 0, "UUID": uuid, "device": "nvidia0", "modelName": "NVIDIA A100-SXM4-40GB"} | labels
    inside = ",".join(f'{key}="{text}"' for key, text in of_sample.items())
    return f"{name}{{{inside}}} {value}"
