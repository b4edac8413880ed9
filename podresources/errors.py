"""What can go wrong between us and the kubelet, in words that a person can act on."""

import re
from pathlib import Path
from typing import Any, Final, Literal

import grpc
import grpc.aio

Reason = Literal[
    "absent",
    "permission",
    "unavailable",
    "deadline",
    "rate_limited",
    "too_large",
    "unimplemented",
    "malformed",
    "not_ready",
    "internal",
]

REMEDIES: Final[dict[Reason, str]] = {
    "absent": "check the kubelet's root directory and mount the socket's directory, not the socket itself",
    "permission": "run the exporter as uid 0 (it needs no capability) and let SELinux or AppArmor permit it",
    "unavailable": "check that the kubelet runs; it is asked again at the next refresh",
    "deadline": "the kubelet is overloaded or hangs; it is asked again at the next refresh",
    "rate_limited": "another client of this socket calls too often; it is asked again at the next refresh",
    "too_large": "look for a pod with thousands of devices or resource claims on this node",
    "unimplemented": "check that this is the right socket and that the kubelet has this API enabled",
    "malformed": "check that this is the right socket; the kubelet may be newer than the exporter",
    "not_ready": "the kubelet is still starting; it is asked again at the next refresh",
    "internal": "look into the log of the kubelet",
}

_REASONS: Final[dict[Any, Reason]] = {
    grpc.StatusCode.CANCELLED: "unavailable",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline",
    grpc.StatusCode.UNIMPLEMENTED: "unimplemented",
    grpc.StatusCode.FAILED_PRECONDITION: "not_ready",
    grpc.StatusCode.PERMISSION_DENIED: "permission",
    grpc.StatusCode.UNAUTHENTICATED: "permission",
}
# A rejected call and an answer over the limit carry the same code; grpc's C core and grpc-go say
# "message larger than max", grpc-java "exceeds maximum size", tonic "message length too large".
_TOO_LARGE = re.compile(r"larger than max|exceeds maximum|too large", re.IGNORECASE)
_LONGEST_DETAIL = 200


class KubeletError(Exception):
    """The kubelet gave no usable answer. ``reason`` is one of a few stable words, fit for a label.

    The message names the socket and the remedy.
    """

    def __init__(self, reason: Reason, socket: Path, detail: str) -> None:
        super().__init__(f"{socket}: {detail} ({reason}): {REMEDIES[reason]}")
        self.reason: Reason = reason


def from_status(error: grpc.aio.AioRpcError, socket: Path) -> KubeletError:
    """Translate the status that ended a call."""
    code, details = error.code(), " ".join((error.details() or "").split())[:_LONGEST_DETAIL]
    return KubeletError(_reason(code, details), socket, f"{code.name} {details}".rstrip())


def _reason(code: grpc.StatusCode, details: str) -> Reason:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return "too_large" if _TOO_LARGE.search(details) else "rate_limited"
    return _REASONS.get(code, "internal")
