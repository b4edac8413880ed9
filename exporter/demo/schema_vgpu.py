"""The records of a scenario's virtual GPUs: those that a host's GPU runs, and the licence of a guest's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgpu:
    """A mediated device of a GPU. It is a vGPU while the process ``pid`` of the host runs on that GPU.

    That process is the driver's part of the virtual machine: its memory and its load are those of the vGPU.
    A ``pid`` of no process is a device whose machine has not been started. ``memory_bytes`` is the frame
    buffer of the ``type``. ``licensed`` is null while the guest's driver has not started. ``uuid`` and
    ``vm_id`` are derived when left empty.
    """

    mdev_uuid: str
    type: str
    memory_bytes: int
    pid: int = 0
    licensed: bool | None = True
    uuid: str = ""
    vm_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLicence:
    """The licence of a vGPU guest; ``expires`` is such as ``2027-01-31T23:59:59`` in UTC, "" is never."""

    product: str
    licensed: bool = True
    expires: str = ""
