"""What the series of a node take on disk, in a block of Prometheus that promtool makes."""

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.fleet.pages import Lines
from benchmarks.prometheus import installed

_INTERVAL = 15


def measured(pages: Sequence[Lines]) -> dict[str, Any]:
    """Import pages of a node as if scraped every 15 s; measure the bytes of a series and of a sample.

    As many pages as a chunk has samples (120) give what a sample takes in the long run.
    """
    # On the hour of a block, so that one block has them all.
    start = int(time.time()) // 7200 * 7200 - 7200
    samples = [
        f"{line} {start + turn * _INTERVAL}"
        for turn, page in enumerate(pages)
        for line in page
        if not line.startswith("#")
    ]
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        source, data = Path(name, "pages"), Path(name, "data")
        source.write_text("\n".join([*samples, "# EOF\n"]))
        words = "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)
        subprocess.run([installed("promtool"), *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ours
        sizes = {
            part: sum(file.stat().st_size for file in data.glob(f"*/{pattern}"))
            for part, pattern in (("index", "index"), ("chunks", "chunks/*"))
        }
    series = len(samples) / len(pages)
    return {
        "series": round(series),
        "index_per_series": sizes["index"] / series,
        "chunks_per_sample": sizes["chunks"] / len(samples),
    }
