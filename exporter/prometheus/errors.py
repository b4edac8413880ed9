"""What can go wrong between us and a Prometheus, each in one sentence that a person can act on."""

import os
import socket
import ssl

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientPayloadError,
    ClientResponseError,
    ServerDisconnectedError,
)


class PrometheusError(Exception):
    """Prometheus did not answer, or not with a result; the text says why, without the URL."""


def why_unreachable(error: Exception) -> str:
    """Tell why no answer came. What libraries say may have the URL in it, and with it a password."""
    if isinstance(error, ClientConnectorCertificateError):
        return (
            f"its certificate is not trusted ({_certificate(error.certificate_error)});"
            " --prometheus-ca-file names the authority that signs it"
        )
    if isinstance(error, ClientPayloadError | ServerDisconnectedError):
        return "the connection ended before the answer did"
    if isinstance(error, ClientResponseError):
        return "what answers at --prometheus-url does not speak HTTP as is expected"
    if isinstance(error, OSError):
        return _system(error.os_error if isinstance(error, ClientConnectorError) else error)
    return f"--prometheus-url cannot be used ({type(error).__name__})"


def _certificate(error: Exception) -> str:
    return getattr(error, "verify_message", "") or type(error).__name__


def _system(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails ({(error.reason or 'no reason given').replace('_', ' ').lower()})"
    # What asyncio adds to the words of the system are addresses only, but many of them.
    return os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__
