"""A process that has imported the program, and starts it by forking: each start costs no imports.

It reads a line of JSON per start, and answers with a line that is the exit code::

    {"words": [...], "environment": {...}, "out": "a file for its output", "err": "one for its complaints",
     "within": "seconds after which it is killed"}
"""

import json
import os
import signal
import sys
from typing import Any

# What commands import only when they run is imported here too, so that no start has to.
from exporter.cli import main


def _become(start: dict[str, Any]) -> int:
    """Be the program, in a child of its own; return its exit code."""
    for number, path in enumerate((os.devnull, start["out"], start["err"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    signal.alarm(start["within"])
    os.environ.clear()
    os.environ.update(start["environment"])
    return main(start["words"])


def _serve() -> None:
    # Not sys.stdin: what it had read ahead, a child would have too.
    for line in iter(sys.stdin.buffer.raw.readline, b""):
        child = os.fork()
        if child == 0:
            sys.exit(_become(json.loads(line)))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
