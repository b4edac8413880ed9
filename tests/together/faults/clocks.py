"""A program whose clocks are set, by a library that is loaded before the C library.

The kernel waits by its own clocks, to which the times of waits are converted.
"""

import contextlib
import math
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.core.commands.program import Serving, serving
from tests.together.faults.pages import Page, labels_of, name_of
from tests.tools import tool
from tests.waiting import LIMIT_SECONDS

# Offsets in nanoseconds are in a file that both have mapped: of the wall clock, and of the others.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static const volatile long long *offsets;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CLOCK_OFFSETS");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *found = file < 0 ? MAP_FAILED : mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) offsets = found;
}

static void add(struct timespec *moment, long long nanoseconds) {
  long long sum = moment->tv_sec * 1000000000LL + moment->tv_nsec + nanoseconds;
  moment->tv_sec = sum / 1000000000LL;
  moment->tv_nsec = sum % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(clock, now);
  int is_time = clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME;
  if (code || !offsets || !is_time) return code;
  add(now, offsets[clock != CLOCK_REALTIME]);
  return 0;
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
  static int (*real)(sem_t *, clockid_t, const struct timespec *);
  if (!real) real = (int (*)(sem_t *, clockid_t, const struct timespec *))dlsym(RTLD_NEXT, "sem_clockwait");
  struct timespec moment = *until;
  if (offsets) add(&moment, -offsets[clock != CLOCK_REALTIME]);
  return real(semaphore, clock, &moment);
}

/* Python waits for its interpreter by this one, on the monotonic clock. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))
      dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real) real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))
      dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec moment = *until;
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  int by_wall = until->tv_sec > wall.tv_sec - 86400 && until->tv_sec < wall.tv_sec + 86400;
  if (offsets) add(&moment, -offsets[!by_wall]);
  return real(condition, mutex, &moment);
}
"""
NANO = 1_000_000_000
HOUR, YEAR = 3600.0, 365 * 86400.0
SCENARIO = "t4-timeslicing"
# No series of these may restart while the program lives.
COUNTERS = ("_total", "_count", "_sum", "_bucket")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a running program, as offsets to the real ones in seconds."""

    served: Serving
    shared: mmap.mmap

    def set(self, *, wall: float = 0.0, monotonic: float = 0.0) -> None:
        """Set both."""
        self.shared[:16] = struct.pack("<qq", round(wall * NANO), round(monotonic * NANO))

    def page(self) -> Page:
        """Return the page of metrics."""
        return Page(self.served.get("metrics"))


def built(folder: Path) -> Path:
    """Compile the library."""
    library = folder / "clocks.so"
    words = [tool("cc"), "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(words, input=SHIM, text=True, check=True, timeout=LIMIT_SECONDS)
    return library


@contextlib.contextmanager
def on_set_clocks(folder: Path, *options: str) -> Iterator[Clocks]:
    """Serve a fake node whose clocks can be set."""
    library, offsets = built(folder), folder / "offsets"
    offsets.write_bytes(bytes(mmap.PAGESIZE))
    descriptor = os.open(offsets, os.O_RDWR)
    with contextlib.closing(mmap.mmap(descriptor, mmap.PAGESIZE)) as shared:
        os.close(descriptor)
        variables = {"LD_PRELOAD": str(library), "CLOCK_OFFSETS": str(offsets)}
        words = ("demo", "--scenario", SCENARIO, "--poll-interval", "1s", *options)
        with serving(*words, **variables) as served:
            yield Clocks(served, shared)


def wrong_between(before: Page, page: Page) -> Iterator[str]:
    """Yield what no step of a clock explains: counters that fell, and values below zero."""
    for series, value in page.samples.items():
        name = name_of(series)
        if not math.isfinite(value) or (value < 0 and not name.endswith("_celsius")):
            yield f"{series} is {value}"
        if name.endswith(COUNTERS) and value < before.samples.get(series, -math.inf):
            yield f"{series} fell from {before.samples[series]} to {value}"
    for name, most in (("compute_used_ratio", 1.0), ("memory_used_bytes", math.inf)):
        for labels, value in page.series(f"gpuslice_container_{name}"):
            if value > most:
                yield f"{name} of {labels} is {value}"


def growth(before: Page, page: Page, family: str) -> Mapping[str, float]:
    """Return by how much each series of a family has grown, by pod."""
    return {
        labels_of(series)["pod"]: value - before.samples[series]
        for series, value in page.samples.items()
        if name_of(series) == family and series in before.samples
    }
