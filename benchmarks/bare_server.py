"""A bare aiohttp handler that serves prepared bytes: as fast as a scrape can be with this server.

``python -m benchmarks.bare_server PORT``; the first line of input is JSON with ``headers``, and the ``body``
in base64. A line of output comes once it listens.
"""

import asyncio
import base64
import json
import sys

from aiohttp import web


async def main(port: int) -> None:
    """Serve until the process is ended."""
    answer = json.loads(await asyncio.to_thread(sys.stdin.readline))
    body, headers = base64.b64decode(answer["body"]), answer["headers"]

    async def handle(_request: web.Request) -> web.Response:
        return web.Response(body=body, headers=headers)

    app = web.Application()
    app.router.add_get("/metrics", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
