"""The page of docs/ that the long runs write their tables into: as it is before them, and how they do."""

import re
from pathlib import Path

BEGIN, END = "<!-- faults -->", "<!-- /faults -->"
PAGE = f"""# Reliability

What was tried to bring the exporter down, to make it say what is not so, or to have one bad part cost the
rest; and what came of it. Everything ran on a fake node: the driver's library, the kubelet and the files of
the node are acted in software, and everything above them is the real program. No cell was tried on a real
GPU, and a real driver may fail in ways that nobody thought of.

## Faults

A *cell* is one fault: what fails, how, and where. While it lasts and after it, each cell is held to the
same claims, on the page that a Prometheus would scrape:

- the program lives, and no exception is left unhandled;
- `/metrics` answers 200 within 50 ms, also while a poll waits (on a busy machine as much later as all else);
- every series of other devices is as if there were no fault, and counters go on at their pace;
- the health series tell what is wrong and whose it is, and count nothing that did not occur;
- no number is false: each sample is what is so, or is absent; memory that no container is known to use counts
  as unattributed;
- sums hold, and nothing is said to use more than there is;
- when the fault is over the page is as before after two polls at most, by itself.

What a cell *loses* is told by these words:

| outcome | meaning |
|---|---|
| nothing | the page is as before; what failed is counted, or another form of the call answered |
| its own readings | the device stays up, and lacks what the call would have told, and what is made of it |
| its GPU | `gpuslice_gpu_up` is 0 of the GPU that the call is about; its readings are gone |
| the GPU that it is a part of | a fault of one MIG device costs its GPU and the MIG devices beside it |
| the count of GPUs | collector `nvml` fails; what was read before stands until it is stale |
| all GPUs of the driver | collector `nvml` fails and all its GPUs are down; holders and GPUs of AMD's stay |

Codes are taken together by what they mean to the program: *not supported* is remembered until the driver is
opened anew, so that recovery is looked at after that; *nothing there* and *invalid argument* may mean that
a board has no such thing; *driver gone* costs the GPU that it is said about, and the whole driver where no
other GPU can be read; every other code is a failure of that one call. What is asked only when the driver is
opened fails then.

The energy of a cut GPU is shared out by the use of all its parts: while that of one is not known, nobody is
given any, and it counts as unattributed.

Some answers are believed although they are codes of errors: that no newer samples are there, that a host
has no vGPU, that a GPU has no MIG mode, and that a slot for a MIG device is empty, for which drivers have
several codes. A driver that says so of what is there makes the page say so too.

Hangs ran for a 25th of the time that is said, with a patience of 0.5 s in place of 1.9 s; one function of
each kind hung as long as it says under the patience of the program. Of several parts that hang at once each
takes up the patience once, so that the poll that finds out may end after its deadline and collector `nvml`
fails once.

{BEGIN}
Not yet run: `make faults`.
{END}

## Fuzzing

A decoder is whatever turns bytes or texts of others into records. Each is given inputs that nobody would
write, made by going on from those that reach code that none reached before. It may refuse them as it says
that it does; it may not raise anything else, take long, or return a record that is not of its types or has
less than none of something.

<!-- fuzz: begin -->
Not yet run: `make fuzz`.
<!-- fuzz: end -->

## Long runs

A day on a node, acted in minutes: pods come and go, the kubelet, the driver and GPUs fail and come back, and
clients ask. No figure of the process may grow with the pods that it has seen, and what the pages counted must
be what was so on the node.

<!-- soak -->
Not yet run: `make soak`.
<!-- /soak -->

## Clocks and disks

These are tests too, and no cells:

- The wall clock is set forward and back by an hour and by years, and slews; the machine stands still for half
  a minute and for an hour. No counter falls, nothing is below zero, and pages are dated by the new clock. Who
  held a GPU while the machine stood still held it; that anybody computed, nobody has seen.
- Two polls in no time, or with a clock in between that went back, make up no rate.
- The log goes to a full disk, to a reader that hangs, or to nobody: pages come, polls go on, and messages are
  lost.
- What is printed to a full disk ends with one line and code 2; a recording that does not fit leaves its
  folder as it was.

## Abuse

What clients without manners do to the server is part of the tests; what a client may take of it is told in
[web-config.md](web-config.md#limits-with-and-without-a-file).

- With 1024 open files there are 768 connections at most, 576 of them of one address. A crowd makes room for
  a new client: what waits longest is closed.
- Beside crowds that are idle, send byte by byte, do not read, send on and on, or ask for pages of their own
  and leave, tests scrape whole pages in time. A crowd is 800 connections, more than there may be.
- **Ten thousand clients that sent without end, on an overloaded machine, made some scrapes fail.**
  [`rate_limit`](web-config.md#what-each-key-does-here) is the remedy, or a
  [NetworkPolicy](security.md#the-port).
- A malformed request gets one refusal or none, and no line of the log.
- Whether a pod stays below its memory limit under all this was computed, and not tried in a cgroup.

## Restarts

- Counters begin at 0. `increase` over a restart adds nothing, and lacks what fell between the two processes.
  There are no `_created` series.
- The time of last activity begins at the restart: a holder that does not compute is quiet from then on, and
  idle after `--idle-after`.
- SIGTERM, SIGINT and SIGHUP end the program with code 0, also when they come again and again; where a driver,
  a disk or a name server hangs, some seconds later.
- SIGKILL leaves nothing behind; of a demo it leaves the temporary folder.
- As pid 1, which it is in a container without the node's process ids, it loses a SIGTERM that comes while
  Python loads, and is killed when the grace period is over. This was not tried.
"""


def write(page: Path, begin: str, end: str, table: str) -> None:
    """Put a table between its marks on the page, which is made if it is not there; all else on it stays.

    Raises ValueError, and writes nothing, where the page does not have the marks once.
    """
    before = page.read_text("utf-8") if page.exists() else PAGE
    written = f"{begin}\n{table.strip()}\n{end}"
    after, places = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: written, before, flags=re.DOTALL
    )
    if places != 1:
        raise ValueError(f"{page} must have {begin} and {end} once, and has them {places} times")
    page.write_text(after, "utf-8")
