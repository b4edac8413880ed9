"""AMD's DRA driver.

Device names:

==================================  ================================================================
``gpu-<card>-<n>``                  a GPU, or a partition that was made before, with render node n
``gpu-<n>-<compute>-nps<memory>``   partitions of a mode, which the driver makes: ``gpu-0-cpx-nps4``
``gpu-vfio-<n>``                    a GPU, or a virtual function of one, for a virtual machine
==================================  ================================================================

A claim has one or several partitions of a device whose name is a mode. Which ones is in the driver's
checkpoint: it notes the render node that a container is given. It does not note admin access.
"""

import re
from collections import defaultdict
from functools import partial
from typing import Any, ClassVar

from exporter.model import DeviceKey, only
from exporter.sharing.base import Read
from exporter.sharing.base.inventory import Device
from exporter.sharing.dra.checkpoint import Form, Prepared, read_checkpoint, record, records, request_of, text
from exporter.sharing.dra.claims import NUMBER, ClaimSystem

AMD_DRIVER = "gpu.amd.com"
RENDER_NODE = re.compile(rf"/dev/dri/renderD({NUMBER})")
WHOLE = "spx"


def _claims(document: Any) -> dict[str, Any]:
    return record(record(document, "v1"), "preparedClaims")


def _devices(claim: Any, _driver: str) -> dict[str, tuple[Prepared, ...]]:
    """Return the devices of one claim; all are prepared."""
    devices: dict[str, list[Prepared]] = defaultdict(list)
    for entry in records({"claim": claim}, "claim"):
        nodes = (text(node, "path") for node in records(record(entry, "ContainerEdits"), "deviceNodes"))
        minor = only(int(match[1]) for node in nodes if (match := RENDER_NODE.fullmatch(node)))
        devices[text(entry, "device_name")].append(
            Prepared(
                # <uid of the claim>/<request>/<device>/<share>
                share_id=text(entry, "shareKey").rpartition("/")[2],
                request=request_of(entry, "request_names"),
                render_minor=minor,
            )
        )
    return {device: tuple(shares) for device, shares in devices.items()}


FORM = Form("checkpoint.json", _claims, _devices)


class AmdDra(ClaimSystem):
    """Whole GPUs and partitions."""

    name = "amd-dra"
    maker = "amd"
    driver = AMD_DRIVER
    marks_admin = False
    names = re.compile(
        rf"gpu-{NUMBER}-(?P<render>{NUMBER})|gpu-{NUMBER}-(?P<mode>[a-z]px)-nps[0-9]|gpu-vfio-{NUMBER}"
    )
    form = FORM
    divides = False
    partition_mode = "amd-partition"
    read: ClassVar[Read | None] = staticmethod(partial(read_checkpoint, driver=AMD_DRIVER, form=FORM))

    def find(self, name: str) -> Device | None:
        """Return the GPU or partition of the render node in a name."""
        match = self.names.fullmatch(name)
        return self._by_render_minor(int(match["render"])) if match is not None and match["render"] else None

    def find_noted(self, noted: Prepared) -> Device | None:
        """Return the GPU or partition that a container was given."""
        return self._by_render_minor(noted.render_minor) if noted.render_minor is not None else None

    def meant_by_name(self, name: str) -> frozenset[DeviceKey] | None:
        """Return what a name without a device may mean: devices in its mode, or of unknown render node."""
        match = self.names.fullmatch(name)
        if match is None:
            return None
        mine = [device for device in self.view.inventory.devices if device.gpu.identity.vendor == self.maker]
        if match["mode"]:
            return frozenset(device.key for device in mine if _mode(device) in (match["mode"], ""))
        return frozenset(device.key for device in mine if match["render"] and _render_minor(device) is None)

    def _by_render_minor(self, minor: int) -> Device | None:
        return only(device for device in self.view.inventory.devices if _render_minor(device) == minor)


def _render_minor(device: Device) -> int | None:
    return device.mig.render_minor if device.mig is not None else device.gpu.identity.render_minor


def _mode(device: Device) -> str:
    """Return the mode of computing of a device's GPU, "" if it is unknown."""
    if device.mig is not None:
        return (device.mig.profile or "").partition("_")[0]
    return WHOLE if device.gpu.mig_enabled is False else ""
