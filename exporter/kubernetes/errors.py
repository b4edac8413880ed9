"""What the Kubernetes API may answer instead of objects, in words that a person can act on."""

from http import HTTPStatus

_REFUSED = "the token of the service account is refused; it is read anew for the next try"


class ApiError(Exception):
    """The API server refused to tell of something; ``right`` says who may let it, and how."""

    def __init__(self, about: str, status: int, message: str, right: str) -> None:
        remedies = {int(HTTPStatus.UNAUTHORIZED): _REFUSED, int(HTTPStatus.FORBIDDEN): right}
        detail = f"the API server answers {status} when asked for {about}"
        super().__init__("; ".join(filter(None, (detail, message, remedies.get(status)))))
        self.forbidden = status == HTTPStatus.FORBIDDEN


class ExpiredError(Exception):
    """The server no longer knows what changed since the version that was asked for."""


class NoListError(Exception):
    """What the server answers is not the list of objects that it was asked for, or not all of it."""


class TooLongError(Exception):
    """A list is longer than anything that can be of one node."""
