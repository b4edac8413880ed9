"""The long form: ten thousand clients at a time, each attack held for a while; prints a table in Markdown.

Run as ``python -m tests.abuse [NAME]``, where NAME is a part of the names of the attacks that are wanted.
"""

import resource
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count

from tests.abuse.attacks import ATTACKS, Attack
from tests.abuse.clients import crowd
from tests.abuse.victim import FILES, Victim, Vitals, victim

CLIENTS, SECONDS, OURS = 10_000, 20.0, 200
# As many files as the exporter has any use for.
MANY_FILES = 4096
TITLES = (
    "attack",
    "files",
    "most open",
    "memory, MiB",
    "CPU, s",
    "slowest scrape, s",
    "missed",
    "lines of log",
)


def main() -> None:
    """Attack an exporter with few files, and one with many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < CLIENTS + OURS:
        sys.exit(
            f"{CLIENTS} clients need as many open files, and {most} are allowed: raise them (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (CLIENTS + OURS, most))
    wanted = [attack for attack in ATTACKS if (sys.argv[1:] or [""])[0] in attack.name]
    _print(TITLES)
    _print("---" for _ in TITLES)
    for files in (FILES, MANY_FILES):
        for attack in wanted:
            with victim(files=files) as served:
                _print(_row(served, attack, files))


def _row(served: Victim, attack: Attack, files: int) -> Iterator[object]:
    before, told = served.vitals(), len(served.lines)
    most, slowest, missed = before, 0.0, 0
    with crowd(served.port, CLIENTS, attack.peers, small=attack.small) as clients:
        attack.begin(clients)
        end = time.monotonic() + SECONDS
        for _ in count():
            attack.again(clients)
            try:
                slowest = max(slowest, served.scrape())
            except OSError as error:
                sys.stderr.write(f"{attack.name}: a scrape failed: {error!r}\n")
                missed += 1
                served.close()
            most = Vitals(*map(max, most, served.vitals()))
            if time.monotonic() > end:
                break
            time.sleep(0.5)
    after = served.settle(before)
    yield f"{CLIENTS} clients: {attack.name}"
    yield from (files, most.files, f"{before.memory:.0f}, then {most.memory:.0f}")
    yield from (f"{after.cpu - before.cpu:.1f}", f"{slowest:.2f}", missed, len(served.lines) - told)


def _print(cells: Iterable[object]) -> None:
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
