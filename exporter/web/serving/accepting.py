"""What is said when no socket can be had for who wants to come in."""

import asyncio
import logging
import math
from typing import Any

log = logging.getLogger(__name__)
# That there is none is worth a line so often, in seconds.
_QUIET = 60.0
# How asyncio names it, which logs each of them at length: hundreds in a moment.
_NO_SOCKET = "out of system resource"


def tell_seldom(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop log once a minute that it gets no socket, and all else as before."""
    before = loop.get_exception_handler()
    told = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told
        if _NO_SOCKET in context.get("message", ""):
            if loop.time() - told >= _QUIET:
                told = loop.time()
                log.error("nobody can be let in: %s: %s; tried again", _NO_SOCKET, context.get("exception"))
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
