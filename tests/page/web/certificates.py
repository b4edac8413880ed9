"""Certificates for tests, made by the program openssl, and clients that show and trust them."""

import ssl
import subprocess
from pathlib import Path

import bcrypt

from tests.tools import tool

CLIENT = "prometheus.monitoring.svc"
PASSWORD = "open sesame"  # noqa: S105 - it opens nothing
CHEAP = bcrypt.hashpw(PASSWORD.encode(), b"$2b$04$saltthatisalwaysthesme").decode()
"""A cheap hash of the password; always the same, because it is part of test names."""


class Authority:
    """A certificate authority in a folder, which certifies names such as ``IP:127.0.0.1``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.cert, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        # Without it clients do not take it for an authority, from Python 3.13 on.
        usage = ("-addext", "keyUsage=critical,keyCertSign")
        _openssl("-subj", f"/CN={name}", *usage, "-out", self.cert, "-keyout", self.key)

    def certify(self, name: str, san: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Make a certificate; return it and its key."""
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        signed = ("-CA", self.cert, "-CAkey", self.key, "-addext", "basicConstraints=critical,CA:false")
        _openssl(
            "-subj", f"/CN={name}", "-addext", f"subjectAltName={san}", *signed, "-out", cert, "-keyout", key
        )
        return cert, key

    def trusted(self, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return a client context that trusts this authority only, with its own certificate if given."""
        context = ssl.create_default_context(cafile=self.cert)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context


def _openssl(*options: object) -> None:
    make = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    command = [tool("openssl"), *make, *map(str, options)]
    subprocess.run(command, check=True, capture_output=True)
