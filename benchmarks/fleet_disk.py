"""What the series of a node take on disk: a block of Prometheus's, made by promtool."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from benchmarks.simulated.prometheus import block_sizes

_INTERVAL = 15


async def measured(pages: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Import pages of a node as if they had been scraped every 15 s: the bytes of a series and of a sample.

    As many as a chunk has samples (120) give what a sample takes in the long run.
    """
    program = shutil.which("promtool")
    if program is None:
        raise RuntimeError("promtool is not on PATH (Debian: apt-get install prometheus)")
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        source, data = Path(name, "pages"), Path(name, "data")
        await asyncio.to_thread(source.write_text, "\n".join(_stamped(pages)) + "\n# EOF\n")
        words = "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)
        process = await asyncio.create_subprocess_exec(program, *words, stdout=DEVNULL)
        if await process.wait():
            raise RuntimeError(f"promtool could not import {source}")
        sizes = block_sizes(data)
    series = sum(not line.startswith("#") for line in pages[0])
    return {
        "series": series,
        "index_per_series": sizes["index"] / series,
        "chunks_per_sample": sizes["chunks"] / series / len(pages),
    }


def _stamped(pages: Sequence[Sequence[str]]) -> Iterator[str]:
    # On the hour of a block, so that one block has them all.
    start = int(time.time()) // 7200 * 7200 - 7200
    for turn, page in enumerate(pages):
        yield from (f"{line} {start + turn * _INTERVAL}" for line in page if not line.startswith("#"))
