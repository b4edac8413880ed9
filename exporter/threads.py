"""Threads for what takes long and never blocks: rendering, compressing, putting together.

Not those of the event loop's own pool: whoever looks names up through the loop may fill it with calls that
hang, and pages would wait for a name server. What is scraped has threads of its own: it waits for nothing
that people or other programs ask for.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_POOL = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix="render")
# A page of metrics has two formats, and a scrape waits for one of them.
_SCRAPED = ThreadPoolExecutor(2, thread_name_prefix="scrape")


async def in_thread(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Make something in one of the threads; raises what ``make`` does."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, partial(make, *arguments, **named))


async def in_scrape_thread(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Make something that is scraped, as ``in_thread`` makes all else."""
    return await asyncio.get_running_loop().run_in_executor(_SCRAPED, partial(make, *arguments, **named))
