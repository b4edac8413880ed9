"""Memory that is free, back to the system."""

import ctypes
from typing import Final

# By the numbers of glibc's malloc.h; sizes are in bytes.
_SETTINGS: Final = {
    # M_ARENA_MAX: one heap. Else threads get heaps of their own, up to eight for each core, and each keeps
    # what its largest page took; Python runs one thread at a time anyway.
    -8: 1,
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD: by itself the library raises them when what is large does not
    # live long, and pages do not. What each answer takes for a moment stays: a compressed page, and the
    # 256 KiB that asyncio reads into. Taking those from the system every time doubled what a scrape costs.
    -3: 512 << 10,
    -1: 1 << 20,
}


def keep_little() -> None:
    """Have the C library give back what is free; before threads are started. Only glibc can be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    for setting, value in _SETTINGS.items():
        mallopt(setting, value)
