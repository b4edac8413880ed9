"""Names of claimed devices in CDI: ``k8s.<driver>/<kind>=<uid of the claim>-<device>``."""

import re

from exporter.model import ClaimedDevice, only

UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CDI_NAME = re.compile(rf"k8s\.([^/=]+)/[^/=]+=({UID})-(.+)")
# What follows the claim's uid in a CDI name, by driver, if that is not the name of the device alone: AMD's
# driver adds the number of a partition, vgpu-manager's the request, and the share or a number.
CDI_DEVICES = {
    "gpu.amd.com": "{device}(?:-[0-9]+)?",
    "manager.nvidia.com": "(?:.+-)?{device}(?:-share-{share}|-[0-9]+)?",
}


def claim_uid(claim: ClaimedDevice) -> str:
    """Return the uid of a claim from its CDI names, "" if they do not have just one.

    Kubelets list the CDI names of the container's other devices too.
    """
    matches = (match for name in claim.cdi if (match := CDI_NAME.fullmatch(name)))
    uids = {match[2] for match in matches if match[1] == claim.driver and _is_device(claim, match[3])}
    return only(uids) or ""


def _is_device(claim: ClaimedDevice, name: str) -> bool:
    """Return True if a name in CDI, without the claim's uid, is that of the device."""
    form = CDI_DEVICES.get(claim.driver, "{device}")
    share = re.escape(claim.share_id) or ".+"
    return re.fullmatch(form.format(device=re.escape(claim.device), share=share), name) is not None


def is_health_of(claim: ClaimedDevice, resource_id: str) -> bool:
    """Return whether the status of a pod names this device: by a CDI name, or by driver, pool and device.

    The kubelet writes the first CDI name of a device; the list of a claim also has those of other devices.
    """
    if resource_id in claim.cdi:
        match = CDI_NAME.fullmatch(resource_id)
        return _is_device(claim, match[3] if match is not None else resource_id.partition("=")[2])
    return resource_id == f"{claim.driver}/{claim.pool}/{claim.device}"
