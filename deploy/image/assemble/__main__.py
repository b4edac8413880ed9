"""Usage: python -m assemble ENVIRONMENT ROOT EXTRAS.

ENVIRONMENT is a virtual environment with the program and all packages of the lock file; those that the
program with these EXTRAS (comma-separated, or none) does not need are removed. ROOT is the folder that
becomes the image.
SOURCE_DATE_EPOCH is the time of all its files, in seconds since 1970.
"""

import compileall
import os
import ssl
import sys
import sysconfig
from pathlib import Path
from py_compile import PycInvalidationMode

from assemble import bill, distributions, libraries
from assemble.command import output_of
from assemble.root import Root

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
# Omitted: modules for development, tests and GUIs; and for terminals and databases, which need system
# libraries.
UNUSED_MODULES = (
    *(
        "test",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "ensurepip",
        "venv",
        "config-*",
        "site-packages",
        "dist-packages",
    ),
    *(
        "tkinter",
        "turtledemo",
        "turtle.py",
        "_tkinter*",
        "EXTERNALLY-MANAGED",
        "sitecustomize.py",
        "__pycache__",
    ),
    *(
        "curses",
        "dbm",
        "sqlite3",
        "_curses*",
        "_dbm*",
        "_gdbm*",
        "_sqlite3*",
        "readline*",
        "nis*",
        "ossaudiodev*",
    ),
    *("_test*", "_xx*", "xx*", "_ctypes_test*"),
)
PROGRAMS = ("python", "gpuslice-exporter", "kubectl-gpuslice")
# NVIDIA's container runtime uses the first to detect Debian and its library folders, and then runs the host's
# ldconfig, which reads the others.
SYSTEM_FILES = ("/etc/debian_version", "/etc/os-release", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
WRITTEN = {
    "/etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\n",
    "/etc/group": "root:x:0:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# Mount points of a container runtime, mostly.
FOLDERS = ("dev", "proc", "root", "run", "sys", "tmp")


def _place_python(root: Root, environment: Path) -> None:
    root.place(STANDARD_LIBRARY, UNUSED_MODULES)
    root.place(environment / "pyvenv.cfg")
    for name in PROGRAMS:
        root.place(environment / "bin" / name)
    root.place(environment / "lib", ("__pycache__",))


def _place_system(root: Root) -> None:
    """Place files for the C library and TLS."""
    for name in SYSTEM_FILES:
        root.place(Path(name))
    root.place(CERTIFICATES)
    trusted = Path(ssl.get_default_verify_paths().openssl_cafile)
    if not root.inside(trusted).exists():
        root.link(trusted, CERTIFICATES)
    for path, text in WRITTEN.items():
        root.write(Path(path), text)
    for name in FOLDERS:
        (root.folder / name).mkdir(exist_ok=True)
    (root.folder / "tmp").chmod(0o1777)
    output_of("/sbin/ldconfig", "-X", "-r", root.folder)


def _compile_modules(root: Root, environment: Path) -> None:
    """Write the bytecode of all modules, never to be compared with its source, since neither changes."""
    for folder in (STANDARD_LIBRARY, environment / "lib"):
        done = compileall.compile_dir(
            root.inside(folder),
            quiet=1,
            stripdir=root.folder,
            prependdir="/",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
        if not done:
            sys.exit(f"error: not all of {folder} can be compiled")


def _settle(root: Root, seconds: int) -> None:
    """Set the same time on all files, so that builds are reproducible."""
    for path in (root.folder, *root.folder.rglob("*")):
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def main(environment: Path, folder: Path, extras: str) -> None:
    """Write the root."""
    distributions.prune(environment, {extra.strip() for extra in extras.split(",")} - {""})
    root = Root(folder)
    _place_python(root, environment)
    for library in libraries.needed_by(root.placed):
        root.place(library)
    packages = bill.place_packages(root)
    _place_system(root)
    _compile_modules(root, environment)
    bill.write(root, environment, packages)
    _settle(root, int(os.environ["SOURCE_DATE_EPOCH"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
