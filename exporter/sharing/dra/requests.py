"""Which container has which device of a resource claim.

A claim has requests, and a container of a pod names a claim, or one request of it: it has the devices of what
it names. The kubelet lists all devices of a claim for every container that names the claim, whatever the
request. The names of requests are in the pod's object, and the request of a device is in the driver's
checkpoint. Where these are missing it is unknown which container has a device.

Sources: ``ResourceClaim`` and ``PodExtendedResourceClaimStatus`` of
https://github.com/kubernetes/api/blob/master/core/v1/types.go
"""

from collections import defaultdict

from exporter.model import ClaimedDevice, ContainerRef
from exporter.sharing.base.view import View

_Claim = tuple[str, str]  # namespace and name
_Listed = tuple[str, str, str]  # driver, pool, device


class Requests:
    """The containers of all claims that the kubelet lists."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listed: dict[_Claim, dict[ContainerRef, set[_Listed]]] = defaultdict(lambda: defaultdict(set))
        for claimed in view.allocations.claims:
            by_container = self._listed[claimed.claim_namespace, claimed.claim]
            by_container[claimed.holder].add((claimed.driver, claimed.pool, claimed.device))

    def has(self, claimed: ClaimedDevice, request: str) -> bool | None:
        """Return whether a listed container has a device, allocated for ``request`` ("" if unknown).

        None means unknown.
        """
        if not claimed.claim:
            return True
        by_container = self._listed[claimed.claim_namespace, claimed.claim]
        devices = list(by_container.values())
        # A container that alone names the claim has all of it. Two that have a claim of one device share it.
        # A kubelet that lists different devices for two containers has looked at what they name.
        if len(devices) == 1 or len(devices[0]) == 1 or any(listed != devices[0] for listed in devices):
            return True
        named = self._named(claimed)
        if "" in named:
            return True
        if not named or not request:
            return None
        return _main(request) in map(_main, named)

    def remedy(self, claimed: ClaimedDevice, driver: str) -> str:
        """Return why it is unknown whether a container has a device, and what to do."""
        if not self._named(claimed):
            missing = "pod's object, which the kubelet's Pods API or --kubernetes-api has"
        else:
            missing = f"checkpoint of {driver}, which lacks this claim or cannot be read"
        return f"which of its containers has which device is unknown: that is in the {missing}"

    def _named(self, claimed: ClaimedDevice) -> set[str]:
        """Return the requests that a container names, () if unknown."""
        details = self._view.details(claimed.holder)
        return {
            named.request
            for named in (details.requests if details is not None else ())
            if (named.container, named.claim) == (claimed.holder.container, claimed.claim)
        }


def _main(request: str) -> str:
    """Return the request of ``request/alternative``."""
    return request.partition("/")[0]
