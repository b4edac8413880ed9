"""The time limits of one poll: of its stages, and of the calls in them.

A poll ends within the interval, whatever hangs; within a second if the interval is shorter. It has three
stages. Each may take what those before it have left, up to the moment at which its share ends:

| stage | ends at | what runs |
|---|---|---|
| devices | 75 % of the interval | the drivers and, at the same time, the kubelet and the names of pods |
| dependents | 90 % | sources that need those answers: processes, sharing systems' files, vGPUs, jobs |
| join | 100 % | attribution and the new snapshot |

With long intervals the first two stages take 10 s each at most.

The poll goes on without a late source, and the next poll checks whether it has answered. ``poller.py``
passes on what a stage has left and holds to the head start, ``collector.py`` holds a source and the join to
it, and ``sources.py`` passes on the limits inside the sources. Those hold to these themselves: threads in
``concurrency.py``, calls of a driver in ``Calls.timed``, requests in the clients.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

DEVICES_SHARE, DEPENDENTS_SHARE = 0.75, 0.9
# On a busy machine, healthy polls would miss the stages of a shorter interval.
SHORTEST_SECONDS = 1.0
# Even with long intervals, the numbers of one poll should be of about one moment.
LONGEST_STAGE_SECONDS = 10.0
# Two devices that hang one after the other are both found within the stage. A healthy call can take most of a
# second on a busy GPU, however short the interval is.
CALL_SHARE, SHORTEST_CALL_TIMEOUT = 0.5, 1.0
# Python runs one thread at a time: reading the devices and the kubelet side by side costs a fifth more of a
# processor than one after the other. So each of them starts alone, but the next does not wait for a slow one.
HEAD_START_SHARE, LONGEST_HEAD_START_SECONDS = 0.2, 0.25
# A client times out before its collector does, so that its own message is shown.
REQUEST_SHARE = 0.9
# Two more sources of pod names may have to answer after the Pods API.
PODS_API_SHARE = 0.5
# A healthy NVIDIA GPU answers in milliseconds, one that is being initialised in some seconds. A GPU with
# calls of a second each is still read, even if each of its MIG slots is asked.
GPU_SECONDS = 10.0
# A healthy AMD GPU answers in milliseconds; one that is being reset delays the reads of its files.
CARD_SECONDS = 5.0


class Budget(NamedTuple):
    """Limits of a poll in seconds; ends of stages count from the start of the poll."""

    devices: float  # end of the stage of devices, the kubelet and pod names
    dependents: float  # end of the stage of sources that depend on those
    join: float  # end of the join
    call_timeout: float  # a driver call about one device is abandoned after this
    request_timeout: float  # timeout of a request to another program
    # Time to read one NVIDIA GPU, so that a slow one does not delay the others.
    # It may exceed the stage: the poll then goes on without the source, and the sweep ends later.
    gpu: float = GPU_SECONDS
    card: float = CARD_SECONDS  # the same for one AMD GPU

    @classmethod
    def of_interval(cls, interval: float) -> "Budget":
        """Return the budget of polls that start every ``interval`` seconds, of a second at least."""
        interval = max(interval, SHORTEST_SECONDS)
        devices = min(DEVICES_SHARE * interval, LONGEST_STAGE_SECONDS)
        return cls(
            devices=devices,
            dependents=min(DEPENDENTS_SHARE * interval, devices + LONGEST_STAGE_SECONDS),
            join=interval,
            call_timeout=max(CALL_SHARE * devices, SHORTEST_CALL_TIMEOUT),
            request_timeout=REQUEST_SHARE * devices,
        )

    @property
    def pods_api(self) -> float:
        """Timeout of the kubelet's Pods API, in seconds."""
        return PODS_API_SHARE * self.request_timeout

    @property
    def head_start(self) -> float:
        """Seconds after which the next source is read, although the one before has not answered."""
        return min(HEAD_START_SHARE * self.devices, LONGEST_HEAD_START_SECONDS)

    def patient(self, seconds: float) -> "Budget":
        """Return a budget with stages of up to ``seconds`` each: for a single poll."""
        return self._replace(devices=seconds, dependents=2 * seconds, join=3 * seconds)

    def start(self, clock: Callable[[], float] = time.monotonic) -> Callable[[float], float]:
        """Start a poll; return a function from the end of a stage to the seconds left until then."""
        began = clock()
        return lambda end: max(began + end - clock(), 0.0)
