"""Events of the fake driver: registration, waiting, delivery, and misuse that would crash a real one."""

import ctypes
import threading

import pynvml
import pytest

from exporter.demo.nvml.call import NO_INSTANCE
from exporter.demo.nvml.events import Happening
from exporter.demo.scenario import XidEvent
from exporter.documents import DocumentError
from tests.fake.demo.driver import INVALID, MISSING, NOT_SUPPORTED, code_of, gpu_at, mig_at
from tests.fake.demo.making import Bench, gpu, instance, made
from tests.waiting import LIMIT_SECONDS, wait_until

XID, DOUBLE_BIT, MIG_CONFIG = 0x8, 0x2, 0x100
# Milliseconds, and longer than any test.
FOR_EVER = 3_600_000


def xid(code: int, device: str = "{gpu:0}", at: float = 10, **facts) -> dict:
    """Return the fault of a device that reports an XID."""
    return {"kind": "xid", "at": at, "device": device, "xid": code} | facts


def waiting(mask: int = XID, index: int = 0):
    """Register a GPU with a new event set; return the set."""
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu_at(index), mask, events)
    return events


def is_waited_on(node: Bench) -> bool:
    """Return whether a thread waits for events."""
    return any(event_set.waits for event_set in node.nvml.events._sets.values())


def nothing(events) -> bool:
    """Return whether no event is waiting."""
    return code_of(pynvml.nvmlEventSetWait_v2, events, 0) == pynvml.NVML_ERROR_TIMEOUT


def address(handle) -> int:
    """Return the pointer in a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def test_an_xid_is_reported_once_at_its_time(bench):
    """With the handle of the GPU, and no instance."""
    node = bench(made(gpus=[gpu(count=2)], faults=[xid(31, "{gpu:1}")]))
    events = waiting(index=1)
    node.step(9)
    assert nothing(events)
    node.step(10)
    node.step(11)
    data = pynvml.nvmlEventSetWait_v2(events, 0)
    assert address(data.device) == address(gpu_at(1))
    assert (data.eventType, data.eventData) == (XID, 31)
    assert (data.gpuInstanceId, data.computeInstanceId) == (NO_INSTANCE, NO_INSTANCE)
    assert nothing(events)


def test_an_xid_of_a_mig_device_has_the_ids_of_its_instances(bench):
    """And the handle of the whole GPU."""
    cut = gpu(mig={"instances": [instance(3, 0, ci=1)]})
    node = bench(made(gpus=[cut], faults=[xid(43, "{gpu:0/mig:0}")]))
    events = waiting()
    node.step(10)
    data = pynvml.nvmlEventSetWait_v2(events, 0)
    assert address(data.device) == address(gpu_at())
    assert (data.eventData, data.gpuInstanceId, data.computeInstanceId) == (43, 3, 1)


def test_events_before_the_registration_are_lost(bench):
    node = bench(made(faults=[xid(31), xid(79, at=20)]))
    node.step(10)
    events = waiting()
    assert nothing(events)
    node.step(20)
    assert pynvml.nvmlEventSetWait_v2(events, 0).eventData == 79


def test_a_new_mig_layout_is_an_event_of_its_gpu(bench):
    """An unchanged one is not."""
    layout = {"kind": "mig_layout", "at": 10, "gpu": 1, "instances": [instance(2, 4)]}
    node = bench(made(gpus=[gpu(count=2, mig={"instances": [instance(1, 0)]})], faults=[layout]))
    events = waiting(MIG_CONFIG, index=1)
    node.step(5)
    assert nothing(events)
    node.step(10)
    data = pynvml.nvmlEventSetWait_v2(events, 0)
    assert (data.eventType, address(data.device)) == (
        MIG_CONFIG,
        address(gpu_at(1)),
    )
    node.step(11)
    assert nothing(events)


def test_only_supported_events_can_be_registered(bench):
    """Bits beyond the board's mask are refused, and unknown bits are invalid."""
    bench(made(gpus=[gpu(), gpu(mig={"enabled": False})]))
    plain, cuttable = map(gpu_at, range(2))
    events = pynvml.nvmlEventSetCreate()
    register = pynvml.nvmlDeviceRegisterEvents
    assert pynvml.nvmlDeviceGetSupportedEventTypes(plain) & (XID | MIG_CONFIG) == XID
    assert pynvml.nvmlDeviceGetSupportedEventTypes(cuttable) & (XID | MIG_CONFIG) == XID | MIG_CONFIG
    register(cuttable, MIG_CONFIG, events)
    assert code_of(register, plain, XID | MIG_CONFIG, events) == NOT_SUPPORTED
    assert code_of(register, plain, 1 << 40, events) == INVALID


def test_events_cannot_be_registered_for_a_mig_device(bench):
    bench(made(gpus=[gpu(mig={"instances": [instance(1, 0)]})]))
    mig = mig_at(0)
    events = pynvml.nvmlEventSetCreate()
    assert code_of(pynvml.nvmlDeviceRegisterEvents, mig, XID, events) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetSupportedEventTypes, mig) == NOT_SUPPORTED


def test_a_board_or_a_driver_can_lack_events(bench):
    board = gpu(unsupported=["nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"])
    bench(made(gpus=[board], missing_functions=["nvmlEventSetWait_v2"]))
    handle, events = gpu_at(), pynvml.nvmlEventSetCreate()
    assert code_of(pynvml.nvmlDeviceGetSupportedEventTypes, handle) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceRegisterEvents, handle, XID, events) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 0) == MISSING


def test_a_wait_blocks_no_other_call_and_ends_with_the_event(bench):
    node = bench(made())
    events, received = waiting(), []
    thread = threading.Thread(target=lambda: received.append(pynvml.nvmlEventSetWait_v2(events, FOR_EVER)))
    thread.start()
    wait_until(lambda: is_waited_on(node))
    assert pynvml.nvmlDeviceGetCount() == 1
    node.nvml.events.happen(Happening(device=node.nvml.board.gpus[0].address, type=XID, data=13))
    thread.join(LIMIT_SECONDS)
    assert [data.eventData for data in received] == [13]


def test_each_set_gets_the_events_of_its_registration(bench):
    node = bench(made())
    one, other, errors = waiting(), waiting(), waiting(DOUBLE_BIT)
    gpu_0 = node.nvml.board.gpus[0].address
    node.nvml.events.happen(Happening(device=gpu_0, type=XID, data=45))
    assert [pynvml.nvmlEventSetWait_v2(event_set, 0).eventData for event_set in (one, other)] == [45, 45]
    assert nothing(errors)
    pynvml.nvmlDeviceRegisterEvents(gpu_at(), XID, errors)
    for kind in (XID, DOUBLE_BIT):
        node.nvml.events.happen(Happening(device=gpu_0, type=kind))
    assert [pynvml.nvmlEventSetWait_v2(errors, 0).eventType for _ in range(2)] == [XID, DOUBLE_BIT]


def test_misuse_that_would_crash_is_refused_and_counted(bench):
    node = bench(made())
    events, waited = waiting(), waiting()
    assert node.nvml.events.misuse == {}
    pynvml.nvmlEventSetFree(events)
    assert code_of(pynvml.nvmlEventSetFree, events) == INVALID
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 0) == INVALID
    thread = threading.Thread(target=code_of, args=(pynvml.nvmlEventSetWait_v2, waited, FOR_EVER))
    thread.start()
    wait_until(lambda: is_waited_on(node))
    pynvml.nvmlEventSetFree(waited)
    thread.join(LIMIT_SECONDS)
    assert node.nvml.events.misuse == {"double free": 1, "wait after free": 1, "free under a wait": 1}


def test_event_sets_end_with_the_driver(bench):
    node = bench(made())
    events = waiting()
    pynvml.nvmlShutdown()
    assert len(node.nvml.events) == 0
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 0) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 0) == INVALID


def test_a_wait_can_fail_by_a_fault(bench):
    fault = {"kind": "nvml_error", "at": 5, "function": "nvmlEventSetWait_v2", "code": "UNKNOWN"}
    node = bench(made(faults=[fault]))
    events = waiting()
    node.step(5)
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 0) == pynvml.NVML_ERROR_UNKNOWN


def test_the_device_of_an_xid_exists_at_some_time():
    layout = {"kind": "mig_layout", "at": 5, "gpu": 0, "instances": [instance(1, 0, uuid="MIG-later")]}
    cut = gpu(mig={"instances": []})
    faults = made(gpus=[cut], faults=[layout, xid(31, "MIG-later")]).faults
    assert isinstance(faults[1], XidEvent)
    with pytest.raises(DocumentError, match=r"faults\[0\].device: MIG-none is not a device"):
        made(faults=[xid(31, "MIG-none")])
