"""One sweep: every GPU of the node and every MIG device, enumerated and read from the beginning."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from exporter.model import DriverInfo, GpuReading
from exporter.nvml.driver.calls import (
    CORE,
    Calls,
    DeviceHangsError,
    DeviceLostError,
    DeviceSlowError,
    DriverGoneError,
)
from exporter.nvml.driver.library import DriverError, Library, NvmlOptions, advice
from exporter.nvml.events import EventWatcher
from exporter.nvml.gpu import GpuReader
from exporter.nvml.readings.gpu_processes import trust
from exporter.nvml.topology import BoundDevices

# A lost GPU may come back when the driver is opened anew. That costs the healthy ones seconds, so it is
# tried at growing distances as long as the same GPUs are lost.
REOPEN_AFTER_SECONDS = 60.0
LONGEST_REOPEN_SECONDS = 3600.0
# Stands for the node as a whole among the uuids.
NODE = ""
# A healthy GPU answers in milliseconds, one that is being initialised in some seconds. One whose calls take a
# second each is still told of, also where something is asked of each of its MIG slots.
GPU_BUDGET_SECONDS = 10.0
# No machine has that many. To look for as many as an answer that is garbage says would never end.
MOST_GPUS = 1024
STUCK = "NotReopened"
STUCK_ADVICE = "the driver must be opened anew, which a call that does not return prevents: restart the pod"


class Sweeper:
    """Reads the node's GPUs; one sweep at a time, always from the same thread.

    ``wake`` is called, in another thread, when a GPU reports what makes an early sweep worth while.
    """

    def __init__(self, options: NvmlOptions, wake: Callable[[], None] | None = None) -> None:
        self.calls = Calls()
        self.events = EventWatcher(self.calls, wake)
        self.driver = DriverInfo()
        self.gpu_count = 0
        self._machine_pids = options.machine_pids
        self._library = Library(options.path, options.library)
        self._bound = BoundDevices(options.sys_root)
        self._gpus = GpuReader(self.calls, options, self.events.note_layout)
        self._driver_told = False
        self._handles: dict[str, Any] = {}
        self._handles_before: dict[str, Any] = {}
        # By place, the sweep in which one took up its time.
        self._slow: dict[int, int] = {}
        self._lost: frozenset[str] = frozenset()
        self._reopen_after = REOPEN_AFTER_SECONDS
        self._opened_at = 0.0
        self._number = 0
        self._gone: list[DriverGoneError] = []

    def sweep(self) -> Iterator[GpuReading]:
        """Yield the reading of each GPU as soon as it is done, those that were lost at last.

        Raises DriverError when the driver as a whole does not answer.
        """
        self._number += 1
        self.calls.driver_microseconds.clear()
        self.calls.group = CORE
        try:
            self._open()
            yield from self._all()
        except DriverGoneError as error:
            if self.close():
                raise DriverError(error.name, advice(error.name)) from None
            raise DriverError(STUCK, STUCK_ADVICE) from None
        except DeviceLostError:
            self._note_lost({NODE})
            raise DriverError("GpuIsLost", "the driver itself answers that a GPU is lost") from None

    def close(self) -> bool:
        """Shut the driver down; the next sweep opens it again.

        False: a thread that hangs in the driver keeps it open, which must not be pulled away under the call.
        """
        if self._library.is_open and not self.calls.hanging:
            self._gpus.closing()
            if self.events.stop():
                self._library.close()
        return not self._library.is_open

    def leave(self, patience: float) -> bool:
        """Leave the thread of the sweeps behind if it waits for longer than so many seconds for one device.

        True: another thread may sweep from now on. That device is read again when its call has returned.
        """
        successor = self.calls.leave(patience)
        if successor is None:
            return False
        self.calls = successor
        self.events.hand_over(successor)
        self._gpus.hand_over(successor)
        return True

    def gone(self) -> list[GpuReading]:
        """Return what is still known of every GPU while the driver is not asked."""
        return [self._gpus.gone(uuid) for uuid in self._gpus.known]

    def _open(self) -> None:
        overdue = time.monotonic() - self._opened_at > self._reopen_after
        if self._lost and overdue and self._library.is_open:
            self._reopen_after = min(2 * self._reopen_after, LONGEST_REOPEN_SECONDS)
            self.close()
        if self._library.is_open and self._bound.changed():
            self.close()
        if not self._library.is_open:
            # In this order, so that what is plugged in while the driver is opened is a change afterwards.
            bound = self._bound.now()
            self._library.open()
            self._gpus.unplugged(self._bound.note(bound))
            self._opened_at = time.monotonic()
            self.calls.forget_unsupported()
            self._gpus.reopened()
            self._handles.clear()
            self._driver_told = False
        if not self._driver_told:
            self._ask_driver()

    def _ask_driver(self) -> None:
        failures = self.calls.failures()
        self.driver = DriverInfo(
            driver_version=self.calls.ask("", "nvmlSystemGetDriverVersion"),
            nvml_version=self.calls.ask("", "nvmlSystemGetNVMLVersion"),
            cuda_version=_cuda(self.calls.ask("", "nvmlSystemGetCudaDriverVersion_v2")),
        )
        self._driver_told = self.calls.failures() == failures
        self._gpus.trust = trust(self.driver.driver_version, machine=self._machine_pids())

    def _all(self) -> Iterator[GpuReading]:
        self.gpu_count = self._count()
        self._handles_before, self._handles = self._handles, {}
        seen: set[str] = set()
        lost: set[str] = set()
        hidden: set[int] = set()
        answers = False
        before = frozenset(self._gpus.known)
        self._gone.clear()
        for index, deadline in self._in_turn():
            reading = self._gpu(index, deadline, lost)
            if reading is None:
                hidden.add(index)
            elif reading.identity.uuid not in seen:
                seen.add(reading.identity.uuid)
                answers = answers or reading.up
                yield reading
        # Of a driver that is gone no GPU can be read. Beside others that are, it is said of that one alone.
        if self._gone and not answers:
            raise self._gone[0]
        self._gpus.replaced(seen, before)
        missing = [known.identity for uuid, known in self._gpus.known.items() if uuid not in seen]
        yield from (self._gpus.gone(identity.uuid) for identity in missing)
        self.events.start(self._handles)
        # What stands at its place and does not say who it is may be the missing one: no reason to reopen.
        self._note_lost(lost.union(identity.uuid for identity in missing if identity.index not in hidden))
        self._gpus.forget_absent()

    def _count(self) -> int:
        count: int | None = self.calls.ask("", "nvmlDeviceGetCount")
        if count is None or count > MOST_GPUS:
            raise DriverError("NoCount", "the driver does not say how many GPUs it has")
        return count

    def _in_turn(self) -> Iterator[tuple[int, float]]:
        """Yield the place of each GPU, and by when (monotonic clock) it must be read.

        Those that kept the others waiting have their turn after them, and the time of one for all together:
        the sweeps of the others must not become rare. Who has waited for it the longest begins.
        """
        slow = self._slow.copy()
        for index in range(self.gpu_count):
            if index not in slow:
                yield index, time.monotonic() + GPU_BUDGET_SECONDS
        together = time.monotonic() + GPU_BUDGET_SECONDS
        for index in sorted(slow, key=lambda index: (slow[index], index)):
            if index < self.gpu_count:
                yield index, together

    def _gpu(self, index: int, deadline: float, lost: set[str]) -> GpuReading | None:
        """Read one GPU; None where it is so far gone that it does not even tell its UUID."""
        uuid = ""
        waited = self._slow.pop(index, None)
        if waited is not None and time.monotonic() > deadline:
            self._slow[index] = waited
            return self._passed_over(index)
        # A thread that was left behind must not reach the calls of the one that goes on.
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
        except DriverError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one GPU answers, the others are read
            calls.count(uuid, "read", type(error).__name__)
        finally:
            calls.deadline = None
        return self._gpus.gone(uuid) if uuid else None

    def _passed_over(self, index: int) -> GpuReading | None:
        """Return what is still known of a GPU that those before it left no time for."""
        uuid = self._gpus.at(index)
        self.calls.count(uuid, "read", "TooSlow")
        if uuid in self._handles_before:
            # Its events are still waited for.
            self._handles[uuid] = self._handles_before[uuid]
        return self._gpus.gone(uuid) if uuid else None

    def _find(self, calls: Calls, index: int) -> tuple[Any, str]:
        """Ask for the handle and the UUID of a GPU, "" where it does not tell."""
        with calls.about(f"#{index}", self._gpus.at(index)):
            handle = calls.ask("", "nvmlDeviceGetHandleByIndex", index)
            uuid = calls.ask("", "nvmlDeviceGetUUID", handle) if handle is not None else ""
        return handle, uuid or ""

    def _note_lost(self, lost: set[str]) -> None:
        if lost != self._lost:
            self._reopen_after = REOPEN_AFTER_SECONDS
        self._lost = frozenset(lost)


def _cuda(number: int | None) -> str | None:
    """Return the driver's 12040 as 12.4; 0 is not a version."""
    return None if not number else f"{number // 1000}.{number % 1000 // 10}"
