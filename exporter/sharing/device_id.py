"""The device ids of NVIDIA's device plugins, in every spelling.

======================================  ==========================================================
``GPU-<uuid>``                          a whole GPU, now and then without the ``GPU-``
``MIG-<uuid>``                          a MIG device
``MIG-GPU-<uuid>/<gi>/<ci>``            a MIG device, as drivers before R470 name it
``nvidia<minor>[/gi<gi>]``              a GPU or MIG device, as GKE's plugin names it
any of the first three + ``::<n>``      replica n of it (time-slicing or MPS)
GKE's + ``/vgpu<n>``                    replica n of it
======================================  ==========================================================

The ids of other systems look alike (``GPU-<uuid>-3``); what a spelling means is decided by whether the
device that it names is there.
"""

import re
from dataclasses import dataclass

REPLICA_MARK = "::"
# No number of a device is longer than nine digits; Python refuses to read very long ones.
LEGACY_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})")
GKE = re.compile(r"nvidia([0-9]{1,9})(?:/gi([0-9]{1,9}))?(?:/vgpu([0-9]+))?")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REPLICA = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class DeviceId:
    """What an id names: a UUID (GPU or MIG), a legacy MIG triple, or a minor with its GPU instance.

    ``replica`` is "" for an id without one: the device is then given out as a whole.
    """

    uuid: str = ""
    parent: str = ""
    gi: int | None = None
    ci: int | None = None
    minor: int | None = None
    replica: str = ""


def parse_device_id(text: str) -> DeviceId | None:
    """Return what the id names, or None for a spelling that no NVIDIA plugin uses."""
    if (gke := GKE.fullmatch(text)) is not None:
        minor, gi, replica = gke.groups()
        return DeviceId(minor=int(minor), gi=None if gi is None else int(gi), replica=replica or "")
    device, mark, replica = text.partition(REPLICA_MARK)
    if mark and not REPLICA.fullmatch(replica):
        return None
    if (legacy := LEGACY_MIG.fullmatch(device)) is not None:
        parent, gi, ci = legacy.groups()
        return DeviceId(uuid=device, parent=parent, gi=int(gi), ci=int(ci), replica=replica)
    if device.startswith(("GPU-", "MIG-")) and "/" not in device:
        return DeviceId(uuid=device, replica=replica)
    if UUID.fullmatch(device):
        return DeviceId(uuid=f"GPU-{device}", replica=replica)
    return None
