"""One sweep: enumerates and reads all GPUs of the node, with their MIG devices."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from exporter.model import DriverInfo, GpuReading
from exporter.nvml.bound_devices import BoundDevices
from exporter.nvml.driver.calls import (
    Calls,
    DeviceHangsError,
    DeviceLostError,
    DeviceSlowError,
    DriverGoneError,
)
from exporter.nvml.driver.library import DriverError, Library, NvmlOptions, remedy
from exporter.nvml.driver.records import CORE
from exporter.nvml.events import EventWatcher
from exporter.nvml.facts import read_mode
from exporter.nvml.gpu import GpuReader
from exporter.nvml.readings.answers import flag
from exporter.nvml.readings.device_reader import SLOW_SECONDS, Schedule
from exporter.nvml.readings.gpu_processes import list_trust, running

# A lost GPU may come back when the driver is opened again. That takes seconds, in which the healthy GPUs are
# not read, so the interval doubles as long as the same GPUs are lost.
REOPEN_AFTER_SECONDS = 60.0
LONGEST_REOPEN_SECONDS = 3600.0
# Stands for the uuid of the node as a whole.
NODE = ""
# A larger count is not plausible; enumerating so many GPUs would not end.
MOST_GPUS = 1024
STUCK = "NotReopened"
STUCK_REMEDY = "a call into the driver does not return, so it cannot be opened again: restart the pod"


class Sweeper:
    """Reads the node's GPUs; one sweep at a time, in one thread.

    ``wake`` is called, in another thread, after events that call for an early sweep.
    """

    def __init__(self, options: NvmlOptions, wake: Callable[[], None] | None = None) -> None:
        self.calls = Calls()
        self.events = EventWatcher(self.calls, wake)
        self.driver = DriverInfo()
        self.gpu_count = 0
        self._options = options
        self._library = Library(options.path, options.library)
        self._bound = BoundDevices(options.sys_root)
        self._gpus = GpuReader(self.calls, options, self.events.note_layout)
        # Whether ``driver`` is complete.
        self._driver_known = False
        # Of the GPUs' readiness for work; only with confidential computing.
        self._readiness = Schedule(SLOW_SECONDS, options.clock)
        # Handles by uuid, of this sweep and the last one.
        self._handles: dict[str, Any] = {}
        self._last_handles: dict[str, Any] = {}
        # Last sweep in which a GPU exceeded its time, by index.
        self._slow: dict[int, int] = {}
        self._lost: frozenset[str] = frozenset()
        self._reopen_after = REOPEN_AFTER_SECONDS
        self._opened_at = 0.0
        # Number of the sweep.
        self._number = 0
        self._gone: list[DriverGoneError] = []

    def sweep(self) -> Iterator[GpuReading]:
        """Yield the reading of each GPU as soon as it is complete, missing GPUs last.

        Raises DriverError if the driver as a whole does not answer.
        """
        self._number += 1
        # A group that no GPU is due for takes no time; it does not leave.
        self.calls.records.driver_microseconds = Counter(
            dict.fromkeys(self.calls.records.driver_microseconds, 0)
        )
        self.calls.group = CORE
        try:
            self._open()
            yield from self._all()
        except DriverGoneError as error:
            if self.close():
                raise DriverError(error.name, remedy(error.name)) from None
            raise DriverError(STUCK, STUCK_REMEDY) from None
        except DeviceLostError:
            self._note_lost({NODE})
            raise DriverError("GpuIsLost", "the driver itself answers that a GPU is lost") from None

    def list_again(self, uuids: Collection[str]) -> dict[str, frozenset[int]]:
        """Return the pids that GPUs without MIG have now, by uuid; without GPUs that do not answer."""
        calls = self.calls
        lists: dict[str, frozenset[int]] = {}
        calls.group = "processes"
        for uuid in self._handles.keys() & set(uuids) if self._library.is_open else ():
            with suppress(DeviceLostError, DeviceHangsError, DriverGoneError), calls.about(uuid):
                processes = running(calls, uuid, self._handles[uuid])
                if processes is not None:
                    lists[uuid] = frozenset(process.pid for process in processes)
        return lists

    def close(self) -> bool:
        """Shut the driver down; the next sweep opens it again.

        Return False if it stays open because a thread hangs in it.
        """
        if self._library.is_open and not self.calls.records.hanging:
            self._gpus.closing()
            if self.events.stop():
                self._library.close()
        return not self._library.is_open

    def abandon_if_hung(self, call_timeout: float) -> bool:
        """Return whether the thread of the sweeps is abandoned: a call exceeds ``call_timeout`` seconds.

        Another thread must then sweep. The device of the call is read again after the call has returned.
        """
        successor = self.calls.successor_if_hung(call_timeout)
        if successor is None:
            return False
        self.calls = successor
        self.events.hand_over(successor)
        self._gpus.hand_over(successor)
        return True

    def gone(self) -> list[GpuReading]:
        """Return the known facts of every GPU while the driver does not answer."""
        return [self._gpus.gone(uuid) for uuid in self._gpus.known]

    def _open(self) -> None:
        overdue = time.monotonic() - self._opened_at > self._reopen_after
        if self._lost and overdue and self._library.is_open:
            self._reopen_after = min(2 * self._reopen_after, LONGEST_REOPEN_SECONDS)
            self.close()
        if self._library.is_open and self._bound.changed():
            self.close()
        if not self._library.is_open:
            # Before opening, so that a GPU that is bound meanwhile is a change afterwards.
            bound = self._bound.now()
            self._library.open()
            self._gpus.unplugged(self._bound.note(bound))
            self._opened_at = time.monotonic()
            self.calls.records.forget_unsupported()
            self._gpus.reopened()
            self.calls.records.driver_microseconds.clear()
            self._handles.clear()
            self._driver_known = False
        if not self._driver_known:
            self._read_driver()
        confidential = self.driver.confidential
        if confidential is not None and confidential.enabled and self._readiness.due(NODE, 0):
            answer = self.calls.ask("", "nvmlSystemGetConfComputeGpusReadyState")
            ready = None if answer is None else flag(answer)
            self.driver = replace(self.driver, confidential=replace(confidential, ready=ready))

    def _read_driver(self) -> None:
        failures = self.calls.records.failures
        driver_version = self.calls.ask("", "nvmlSystemGetDriverVersion")
        nvml_version = self.calls.ask("", "nvmlSystemGetNVMLVersion")
        # 12040 is 12.4; 0 is not a version.
        cuda = self.calls.ask("", "nvmlSystemGetCudaDriverVersion_v2")
        before_mode = self.calls.records.failures
        mode = read_mode(self.calls)
        mode_failed = mode is None and self.calls.records.failures != before_mode
        self.driver = DriverInfo(
            driver_version=driver_version,
            nvml_version=nvml_version,
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            confidential=mode,
        )
        self._readiness.forget()
        self._driver_known = self.calls.records.failures == failures
        machine = self._options.machine_pids()
        self._gpus.trust = list_trust(self.driver, machine=machine, mode_failed=mode_failed)

    def _all(self) -> Iterator[GpuReading]:
        count: int | None = self.calls.ask("", "nvmlDeviceGetCount")
        if count is None or count > MOST_GPUS:
            raise DriverError("NoCount", "the driver does not report a plausible number of GPUs")
        self.gpu_count = count
        self._last_handles, self._handles = self._handles, {}
        seen: set[str] = set()
        lost: set[str] = set()
        unidentified: set[int] = set()
        any_up = False
        earlier = frozenset(self._gpus.known)
        self._gpus.note_events(self.events.telling_layouts(), self.events.log.take_changed())
        self._gone.clear()
        for index, deadline in self._in_turn():
            reading = self._gpu(index, deadline, lost)
            if reading is None:
                unidentified.add(index)
            elif reading.identity.uuid not in seen:
                seen.add(reading.identity.uuid)
                any_up = any_up or reading.up
                yield reading
        # The driver is gone only if no GPU can be read; otherwise only the GPU with that error is lost.
        if self._gone and not any_up:
            raise self._gone[0]
        self._gpus.replaced(seen, earlier)
        missing = [known.identity for uuid, known in self._gpus.known.items() if uuid not in seen]
        yield from (self._gpus.gone(identity.uuid) for identity in missing)
        self.events.start(self._handles)
        # An unidentified GPU with the index of a missing one may be that one: no reason to open the driver
        # again.
        self._note_lost(
            lost.union(identity.uuid for identity in missing if identity.index not in unidentified)
        )
        self._gpus.forget_absent()

    def _in_turn(self) -> Iterator[tuple[int, float]]:
        """Yield the index of each GPU, and the time by which it must be read (monotonic clock).

        Slow GPUs are last, longest-waiting first, and share the time of one, so that they do not delay the
        next sweep of the others.
        """
        slow = self._slow.copy()
        for index in range(self.gpu_count):
            if index not in slow:
                yield index, time.monotonic() + self._options.gpu_budget
        shared_deadline = time.monotonic() + self._options.gpu_budget
        for index in sorted(slow, key=lambda index: (slow[index], index)):
            if index < self.gpu_count:
                yield index, shared_deadline

    def _gpu(self, index: int, deadline: float, lost: set[str]) -> GpuReading | None:
        """Return the reading of one GPU, None for one without a UUID; add a lost one to ``lost``."""
        uuid = ""
        slow_since = self._slow.pop(index, None)
        if slow_since is not None and time.monotonic() > deadline:
            self._slow[index] = slow_since
            return self._passed_over(index)
        # A thread that is abandoned here must not use the calls of its successor.
        calls = self.calls
        calls.deadline = deadline
        calls.group = CORE
        try:
            handle, uuid = self._find(calls, index)
            if not uuid:
                return None
            self._handles[uuid] = handle
            with calls.about(uuid):
                return self._gpus.read(handle, uuid, index, self._number)
        except DeviceLostError:
            lost.add(uuid or f"{NODE}{index}")
        except DeviceHangsError:
            self._handles.pop(uuid, None)
        except DeviceSlowError:
            self._slow[index] = self._number
        except DriverGoneError as error:
            self._gone.append(error)
            lost.add(uuid or f"{NODE}{index}")
        except Exception as error:  # noqa: BLE001 - one GPU must not prevent the others from being read
            calls.count(uuid, "read", type(error).__name__)
        finally:
            calls.deadline = None
        return self._gpus.gone(uuid) if uuid else None

    def _passed_over(self, index: int) -> GpuReading | None:
        """Return the known facts of a GPU that there is no time left to read."""
        uuid = self._gpus.at(index)
        self.calls.count(uuid, "read", "TooSlow")
        if uuid in self._last_handles:
            # Keep the subscription to its events.
            self._handles[uuid] = self._last_handles[uuid]
        return self._gpus.gone(uuid) if uuid else None

    def _find(self, calls: Calls, index: int) -> tuple[Any, str]:
        """Return the handle and the UUID of a GPU, None and "" if unknown."""
        with calls.about(f"#{index}", self._gpus.at(index)):
            handle = calls.ask("", "nvmlDeviceGetHandleByIndex", index)
            uuid = calls.ask("", "nvmlDeviceGetUUID", handle) if handle is not None else ""
        return handle, uuid or ""

    def _note_lost(self, lost: set[str]) -> None:
        if lost != self._lost:
            self._reopen_after = REOPEN_AFTER_SECONDS
        self._lost = frozenset(lost)
