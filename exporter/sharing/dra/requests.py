"""Which container has which device of a resource claim.

A claim has requests, and a container of a pod names a claim, or one request of it: it has the devices of what
it names. The kubelet lists all devices of a claim for every container that names the claim, whatever the
request. The names of requests are in the pod's object, and the request of a device is in the driver's
checkpoint. If one of these is missing, it is unknown which container has a device.

Sources: ``ResourceClaim`` and ``PodExtendedResourceClaimStatus`` of
https://github.com/kubernetes/api/blob/master/core/v1/types.go
"""

from exporter.model import ClaimedDevice
from exporter.sharing.base.view import View


def has_device(view: View, claimed: ClaimedDevice, request: str, shares: int) -> bool | None:
    """Return whether a listed container has a device, allocated for ``request`` ("" if unknown).

    ``shares`` is the number of the claim's shares of the device in the checkpoint. None means unknown.
    """
    devices = list(view.devices_by_claim[claimed.claim_namespace, claimed.claim].values())
    named = _named(view, claimed)
    # Without a name it is unknown whether two entries are of one claim. A container that alone names a claim
    # has all of it.
    if not claimed.claim or len(devices) == 1 or "" in named:
        return True
    if named and request:
        return _main(request) in map(_main, named)
    # Containers that name a claim of one device share it. A kubelet that lists different devices for two
    # containers has looked at what they name.
    if (len(devices[0]) == 1 and shares <= 1) or any(listed != devices[0] for listed in devices):
        return True
    return None


def remedy(view: View, claimed: ClaimedDevice) -> str:
    """Return why it is unknown whether a container has a device, and where that is to be found."""
    if len(view.devices_by_claim[claimed.claim_namespace, claimed.claim]) == 1:
        return (
            "whether it holds its devices or has admin access is unknown: that is in the checkpoint of "
            f"{claimed.driver}, which cannot be read"
        )
    if not _named(view, claimed):
        missing = "pod's object, which the kubelet's Pods API or --kubernetes-api has"
    else:
        missing = f"checkpoint of {claimed.driver}, which lacks this claim or cannot be read"
    return f"which of its containers has which device is unknown: that is in the {missing}"


def _named(view: View, claimed: ClaimedDevice) -> set[str]:
    """Return the requests of the claim that a container names, empty if unknown."""
    details = view.details(claimed.holder)
    return {
        named.request
        for named in (details.requests if details is not None else ())
        if (named.container, named.claim) == (claimed.holder.container, claimed.claim)
    }


def _main(request: str) -> str:
    """Return the request of ``request/alternative``."""
    return request.partition("/")[0]
