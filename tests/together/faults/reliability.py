"""docs/reliability.md without results, and writing the tables of the long runs into it."""

import re
from pathlib import Path

BEGIN, END = "<!-- faults -->", "<!-- /faults -->"
PAGE = f"""# Reliability

Tests that try to stop the exporter, to make it report wrong values, or to spread a fault, and their results.
All ran on a fake node: the driver's library, the kubelet and the files of the node are simulated; everything
above them is the real program. Nothing was tested on a real GPU, and a real driver may fail in other ways.

## Faults

A *cell* is one fault: what fails, how, and where. During and after it, each cell is checked on the page that
a Prometheus would scrape:

- the program runs, without unhandled exceptions;
- `/metrics` answers 200, also while a poll waits for a call that hangs;
- all series of other devices are as without the fault, and counters continue;
- the health series name the fault and the device, and count nothing else;
- no value is wrong: it is right or absent; memory without a known container counts as unattributed;
- sums hold, and no use exceeds the device;
- after the fault, the page recovers by itself within two polls; only a reading that is not read in every poll
  and failed in two of them waits until it is due, a minute at most.

Outcomes of a cell:

| outcome | meaning |
|---|---|
| nothing | the page is as before; the failure is counted, or another form of the call answered |
| its own readings | the device stays up, without the readings of the call and values derived from them |
| its GPU | `gpuslice_gpu_up` is 0 for the GPU of the call; its readings are absent |
| the GPU that it is a part of | a fault of one MIG device affects its GPU and the GPU's other MIG devices |
| the count of GPUs | collector `nvml` fails; earlier readings are shown until they are stale |
| all GPUs of the driver | collector `nvml` fails and all its GPUs are down; holders and AMD GPUs stay |

Codes are grouped by their meaning to the program: *not supported* is remembered until the driver is reopened,
so recovery is checked after that; *nothing there* and *invalid argument* may mean that a board does not have
it; *driver gone* affects the GPU of the call, and the whole driver if no other GPU can be read; every other
code is a failure of that one call. Calls that are only made when the driver is opened fail then.
Failures of one call with different codes follow one another, a poll each, and recovery is checked after the
last; all others recover one by one.

The energy of a GPU in MIG mode is split by the use of all its MIG devices: while one is unknown, no container
gets any, and it counts as unattributed.

Some error codes are believed: no newer samples, no vGPU on a host, no MIG mode on a GPU, and an empty slot
for a MIG device, for which drivers have several codes. A driver that wrongly returns one makes the page
wrong.

Timeouts are not measured here: a call is abandoned once it is seen to hang, or returns just before that
(*returns late*), so no result depends on the speed of the machine. Hangs of 45 s with the real timeout of a
call are no longer among the cells. Several parts that hang at once are tested with short deadlines: each poll
ends while they hang.

Every change has to pass about 500 of the cells. Each pair of what fails (by group), how (by meaning) and
where is in one of them, and so is each function, code and kind of file. The whole matrices run each night.

`python -m benchmarks.hostile` measures how long a scrape takes while a call hangs, as a ratio to a scrape at
rest in the same run.

{BEGIN}
Not yet run: `make faults`.
{END}

## Fuzzing

A decoder is code that parses external bytes or texts. Each gets random inputs, guided by code coverage. It
may refuse them with its documented errors; it must not raise others, take long, or return a record with
wrong types or negative amounts.

<!-- fuzz: begin -->
Not yet run: `make fuzz`.
<!-- fuzz: end -->

## Long runs

A day on a node, simulated in minutes: pods come and go, the kubelet, the driver and GPUs fail and recover,
and clients send requests. Resources of the process must not grow with the number of past pods, and the
counters of the pages must match the node.

<!-- soak -->
Not yet run: `make soak`.
<!-- /soak -->

## Clocks and disks

Further tests, which are not cells:

- The wall clock is set forward and back by an hour and by years, and slews; the machine is suspended for half
  a minute and for an hour. No counter falls, nothing is negative, and pages have the new time. A suspension
  counts as held time, and not as used.
- Two polls without time in between, or with a clock that went back, give no rate.
- The log goes to a full disk, to a reader that hangs, or to a closed pipe: pages and polls continue, and
  messages are lost.
- Output to a full disk ends with one line and code 2; a recording that does not fit leaves its folder
  unchanged.

## Abuse

Misbehaving clients are part of the tests; the limits for clients are in
[web-config.md](web-config.md#limits-with-and-without-a-file).

- There are 300 connections at most, 225 of them of one address. A new one beyond that is closed at once, with
  a log line at most once a minute.
- During a crowd of one address that is idle, sends byte by byte, does not read, sends without end, or
  requests many pages and disconnects, every scrape is answered, also over a new connection. Open files and
  memory stay within their caps, and no file or thread of the crowd is left.
- **A crowd of two or more addresses can take all connections.** A Prometheus that is connected is still
  answered. New clients are closed, the kubelet's probe among them, so that the pod is restarted. A connection
  without a request ends after 10 s, one that does not read after 30 s, and one that is idle after an answer
  after 180 s; but a crowd connects again. The remedy is a [NetworkPolicy](security.md#the-port), such as
  `deploy/components/network-policy`, which lets only the namespace of Prometheus in.
- How long a scrape takes beside a crowd is not tested but measured: `python -m benchmarks.hostile`.
- A request whose URL and headers have more than 32 KiB in all is answered with 414 or 431, which name the
  limit. The client can read that answer while it still sends. A request with 1,024 headers, the most there
  may be, takes half a megabyte until its answer has ended: 203 MiB were measured with 225 such connections,
  94 MiB without.
- A malformed request gets one refusal, and no log line.
- Whether a pod stays below its memory limit under all this was computed, and not tested in a cgroup.

## Restarts

- Counters restart at 0. `increase` over a restart only lacks the time between the two processes. There are no
  `_created` series.
- The time of last activity restarts: a holder that does not compute is quiet from then on, and idle after
  `--idle-after`.
- SIGTERM, SIGINT and SIGHUP end the program with code 0, also if repeated; some seconds later if a driver, a
  disk or a name server hangs.
- SIGKILL leaves nothing behind, except the temporary folder of a demo.
- As pid 1, as in a container without the node's process ids, it loses a SIGTERM that arrives while Python
  loads, and is killed after the grace period. This was not tested.
"""


def write(page: Path, begin: str, end: str, table: str) -> None:
    """Replace the table between its marks on the page, which is created if it does not exist.

    Raises ValueError, and writes nothing, unless the page has the marks once.
    """
    before = page.read_text("utf-8") if page.exists() else PAGE
    written = f"{begin}\n{table.strip()}\n{end}"
    after, places = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: written, before, flags=re.DOTALL
    )
    if places != 1:
        raise ValueError(f"{page} must have {begin} and {end} once, and has them {places} times")
    page.write_text(after, "utf-8")
