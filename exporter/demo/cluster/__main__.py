"""Serve the API of the cluster here until a signal: python -m exporter.demo.cluster --kubeconfig FILE.

It listens on a free port of 127.0.0.1, writes a kubeconfig for it, and prints its address.
"""

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from exporter.demo.cluster.api import FakeApi
from exporter.demo.cluster.cluster_file import Cluster, load_cluster
from exporter.demo.cluster.cluster_objects import cluster_objects

PERIOD_SECONDS = 1.0
# As often as a real server does, about; watchers know by it that they have missed nothing.
BOOKMARK_SECONDS = 60.0


async def play(cluster: Cluster, api: FakeApi) -> None:
    """Change the objects of the server as time passes, until cancelled."""
    started, began, marked = time.time(), time.monotonic(), 0.0
    while True:
        seconds = time.monotonic() - began
        show(cluster, api, seconds, started)
        if seconds - marked >= BOOKMARK_SECONDS:
            marked = seconds
            for collection in api.collections:
                collection.bookmark()
        await asyncio.sleep(PERIOD_SECONDS)


def show(cluster: Cluster, api: FakeApi, seconds: float, started: float) -> None:
    """Make the objects of the server those of the cluster at a time."""
    kinds = {"nodes": api.nodes, "pods": api.pods, **api.dra}
    for kind, objects in cluster_objects(cluster, seconds, started).items():
        kinds[kind].replace(objects)


async def serve(kubeconfig: Path) -> None:
    """Serve until SIGINT or SIGTERM."""
    api, cluster = FakeApi(), load_cluster()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    show(cluster, api, 0.0, time.time())
    await api.start()
    playing = asyncio.create_task(play(cluster, api))
    try:
        api.kubeconfig(kubeconfig)
        sys.stdout.write(f"{api.url}\n")
        sys.stdout.flush()
        await asyncio.wait((playing, asyncio.create_task(ended.wait())), return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
    finally:
        playing.cancel()
        await api.stop()


def main() -> None:
    """Serve the cluster."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="FILE", help="write one here")
    asyncio.run(serve(parser.parse_args().kubeconfig))


if __name__ == "__main__":
    main()
