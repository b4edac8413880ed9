"""What the Kubernetes API may answer instead of a node, in words that a person can act on."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

_REMEDIES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the token of the service account is refused; it is read anew for the next try",
    HTTPStatus.FORBIDDEN: "let the service account list and watch nodes: deploy/components/node-labels",
}


class ApiError(Exception):
    """The API server refused to tell of a node."""

    def __init__(self, node: str, status: int, message: str = "") -> None:
        detail = f"the API server answers {status} when asked for node {node}"
        super().__init__("; ".join(filter(None, (detail, message, _REMEDIES.get(status)))))


class ExpiredError(Exception):
    """The server no longer knows what changed since the version that was asked for."""
