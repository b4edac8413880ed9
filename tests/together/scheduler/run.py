"""Compare verdicts with a real scheduler in many random clusters.

``python -m tests.together.scheduler.run COUNT [FIRST SEED]`` prints the tally, with seeds of disagreements.
It needs what ``make cluster`` builds.
"""

import sys
import time
from contextlib import closing

from tests.together.scheduler.compare import Comparison
from tests.together.scheduler.control_plane import running
from tests.together.scheduler.test_scheduler import programs


def main(count: int, first: int = 0) -> int:
    """Return the exit status: 1 if anything disagrees."""
    began = time.monotonic()
    with running(programs()) as api, closing(Comparison(api)) as comparison:
        for seed in range(first, first + count):
            comparison.run(seed)
            if comparison.tally.clusters % 50 == 0:
                sys.stderr.write(f"{comparison.tally.clusters} of {count}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(f"{comparison.tally.text()}\nseeds {first} to {first + count - 1}, {seconds:.0f} s\n")
    return int(bool(comparison.tally.disagreements))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
