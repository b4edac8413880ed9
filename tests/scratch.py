"""Where tests write. Fake nodes are in memory: a disk took half of the time of a test that acts one out.

``tmp_path`` stays on the disk, as what Prometheus and others write there may be large.
"""

import os
import shutil
import tempfile
from pathlib import Path

DISK = tempfile.gettempdir()
_MEMORY, _LEAST_BYTES = Path("/dev/shm"), 1 << 30


def use_memory() -> None:
    """Make temporary folders of this process, and of programs it starts, in memory if there is room."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _LEAST_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", DISK)
        tempfile.tempdir = str(_MEMORY)
