"""The bill of materials: CycloneDX of the distributions, of Debian's packages, and of what is in neither."""

import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from assemble.command import output_of
from assemble.distributions import SCRIPT, SCRIPT_ONLY, site_packages
from assemble.root import Root

BILL = Path("/usr/share/sbom/gpuslice-exporter.cdx.json")
SPECIFICATION = SchemaVersion.V1_6
SHOWN = "${binary:Package}\t${source:Package}\t${Version}\t${Architecture}\n"
Component = dict[str, Any]


def place_packages(root: Root) -> list[str]:
    """Place status files and licenses of the Debian packages of all files; return the packages.

    Scanners of distroless images read the status files.
    """
    # Packages from before the merge of /lib and /usr/lib list their files by the older names.
    names = {str(path): str(path).removeprefix("/usr") for path in root.placed if path.is_relative_to("/usr")}
    paths = (*names, *(name for name in names.values() if name))
    # It fails if a file belongs to no package.
    lines = output_of("dpkg-query", "--search", *paths, complete=False).splitlines()
    packages = sorted({line.rpartition(": ")[0] for line in lines if not line.startswith("diversion by ")})
    for package in packages:
        status = output_of("dpkg-query", "--status", package)
        name = package.partition(":")[0]
        root.write(Path("/var/lib/dpkg/status.d") / name, status)
        if (licenses := Path("/usr/share/doc") / name / "copyright").exists():
            root.place(licenses)
    return packages


def write(root: Root, environment: Path, packages: list[str]) -> None:
    """Write the bill of all placed files."""
    listing = ["--output-reproducible", "--spec-version", SPECIFICATION.to_version()]
    program = ["--pyproject", "pyproject.toml", "--mc-type", "application"]
    python = environment / "bin/python"
    bill = json.loads(output_of("/build/bin/cyclonedx-py", "environment", *listing, *program, python))
    bill["components"] += [_interpreter(), _script(environment), *_of_debian(packages)]
    text = json.dumps(bill, indent=1)
    if error := JsonStrictValidator(SPECIFICATION).validate_str(text):
        sys.exit(f"error: the bill of materials is not valid: {error}")
    root.write(BILL, text)


def _interpreter() -> Component:
    version = platform.python_version()
    return _component("application", "cpython", version, f"pkg:generic/cpython@{version}")


def _script(environment: Path) -> Component:
    with (site_packages(environment) / SCRIPT_ONLY / SCRIPT).open() as file:
        head = file.read(500)
    (version,) = re.findall(r"plotly\.js v(\S+)", head)
    return _component("library", "plotly.js", version, f"pkg:npm/plotly.js@{version}")


def _of_debian(packages: list[str]) -> list[Component]:
    if not packages:
        return []
    lines = output_of("dpkg-query", "--show", "--showformat", SHOWN, *packages).splitlines()
    release = platform.freedesktop_os_release()["VERSION_ID"]
    components = []
    for line in lines:
        package, source, version, architecture = line.split("\t")
        name = package.partition(":")[0]
        details = f"arch={architecture}&distro=debian-{release}&upstream={source}"
        components.append(_component("library", name, version, f"pkg:deb/debian/{name}@{version}?{details}"))
    return components


def _component(kind: str, name: str, version: str, purl: str) -> Component:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl.replace("+", "%2B")}
