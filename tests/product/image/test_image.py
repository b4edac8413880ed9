"""The image has only what runs, is reproducible, and its bill of materials is complete."""

import json
import os
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.product.image import building
from tests.product.image.engine import buildah, output, podman
from tests.tools import ROOT, tool

# The first test of a run waits for the image, for minutes if nothing is cached.
pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]

LARGEST = 150_000_000
SONAME = "libnvidia-ml.so.1"
BILL = "usr/share/sbom/gpuslice-exporter.cdx.json"
HEADER_UNCHECKED = 0b01  # of bytecode: it has a hash of its source, which is never compared
IMPORT_ALL = """
import importlib, pkgutil, sys
import exporter, podresources
failed = {}
for package in (exporter, podresources):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            module.name.endswith("__main__") or importlib.import_module(module.name)
        except ImportError as error:
            failed[module.name] = error.name
print(failed, *sorted({name.partition(".")[0] for name in sys.modules}))
"""
# The libraries to which NVIDIA's are linked, and the number of trusted certificates.
LOADABLE = """
import ctypes, ssl
for name in ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"):
    ctypes.CDLL(name)
print(ssl.create_default_context().cert_store_stats()["x509_ca"])
"""


def _files(root: Path) -> Iterator[Path]:
    """Yield all files and links below a root."""
    for folder, names, files in os.walk(root):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in (*files, *links))


def _python(image: str, code: str, *options: str) -> str:
    limits = ("--ulimit=nofile=1024:4096", "--ulimit=nproc=4096:4096")
    confined = ("--rm", "--network=none", "--read-only", *limits)
    return output(*podman("run", *confined, *options, "--entrypoint=python", image, "-c", code))


def _bill(unpacked: Path) -> dict[str, Any]:
    return dict(json.loads((unpacked / BILL).read_text()))


def _distributions(unpacked: Path) -> set[tuple[str, str]]:
    """Return the names and versions of the distributions in the image."""
    heads = [path.read_text().partition("\n\n")[0] for path in unpacked.rglob("*.dist-info/METADATA")]
    fields = [dict(line.split(": ", 1) for line in head.splitlines() if ": " in line) for head in heads]
    return {(each["Name"].lower().replace("_", "-"), each["Version"]) for each in fields}


def test_it_is_smaller_than_150_mb(unpacked: Path):
    assert sum(path.lstat().st_size for path in _files(unpacked)) < LARGEST


def test_its_only_programs_are_python_and_the_exporter(unpacked: Path):
    """No shell, no compiler, no pip."""
    executable = {path.name for path in _files(unpacked) if _is_program(path)}

    python = {"python", "python3", f"python{building.PYTHON}"}
    assert executable == python | {"gpuslice-exporter", "kubectl-gpuslice"}


def _is_program(path: Path) -> bool:
    """Return whether a kernel would run it; texts and modules of wheels may have the mode of programs too."""
    if not path.is_file() or not path.stat().st_mode & 0o111 or {".so", ".py"} & {*path.suffixes}:
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"\x7fELF", b"#!"))


def test_it_cannot_install_or_compile(unpacked: Path):
    """It has no pip, no setuptools, no header and no static library."""
    modules = {
        path.name for path in unpacked.rglob("*") if path.name in ("pip", "setuptools", "ensurepip", "venv")
    }
    sources = [path for path in _files(unpacked) if path.suffix in (".h", ".a", ".c", ".whl")]

    assert not modules
    assert not [path for path in sources if "site-packages" not in path.parts]


def test_every_file_belongs_to_root_and_grants_no_rights(unpacked: Path):
    """None is set-uid or writable by others, and every link has a target."""
    odd = []
    for path in _files(unpacked):
        info = path.lstat()
        bad = stat.S_ISUID | stat.S_ISGID | (0 if path.is_symlink() else stat.S_IWOTH | stat.S_IWGRP)
        target = path.readlink() if path.is_symlink() else None
        place = unpacked / target.relative_to("/") if target and target.is_absolute() else path
        if (info.st_uid, info.st_gid) != (0, 0) or info.st_mode & bad or not place.exists():
            odd.append(path)

    assert odd == []


def test_every_module_is_compiled(unpacked: Path):
    """Python uses its bytecode without a look at the source."""
    modules = [path for path in _files(unpacked) if path.suffix == ".py"]
    tag = f"cpython-{building.PYTHON.replace('.', '')}"
    flags = {}
    for module in modules:
        with (module.parent / "__pycache__" / f"{module.stem}.{tag}.pyc").open("rb") as file:
            flags[module] = int.from_bytes(file.read(8)[4:], "little")

    assert len(modules) > 500
    assert set(flags.values()) == {HEADER_UNCHECKED}


def test_it_has_one_copy_of_the_charts_script(unpacked: Path):
    """And no other file of plotly or of its own requirements."""
    (site,) = unpacked.glob("opt/gpuslice/lib/python3.*/site-packages")

    assert [path.name for path in _files(site / "plotly")] == ["plotly.min.js"]
    assert not [*site.glob("_plotly*"), *site.glob("narwhals*")]


def test_all_modules_can_be_imported_in_the_image(image: str):
    """Except those of the kubernetes extra; none needs plotly."""
    failed, _, imported = _python(image, IMPORT_ALL).partition("} ")

    assert {part.split("'")[3] for part in failed.strip("{}").split(", ") if part} <= {
        "kubernetes_asyncio",
        "promql_parser",
    }
    assert not {"plotly", "narwhals", "packaging"} & set(imported.split())


def test_libraries_and_certificates_are_found(image: str):
    """Those to which a driver's library is linked, and those of the usual authorities."""
    assert int(_python(image, LOADABLE)) > 100


def test_nvidias_runtime_recognizes_debian(unpacked: Path):
    """By the files from which it chooses the folder, and which ldconfig then reads."""
    assert (unpacked / "etc/debian_version").is_file()
    assert "include /etc/ld.so.conf.d/*.conf" in (unpacked / "etc/ld.so.conf").read_text()
    assert (unpacked / "etc/ld.so.conf.d").is_dir()
    assert (unpacked / "etc/ld.so.cache").is_file()
    assert list(unpacked.glob("usr/lib/*-linux-gnu/libc.so.6"))


def test_a_library_is_found_by_the_cache_that_the_hosts_ldconfig_writes(
    image: str, unpacked: Path, tmp_path: Path
):
    """If NVIDIA's runtime puts the driver into a folder of the host's."""
    root, driver = tmp_path / "root", tmp_path / SONAME
    root.mkdir()
    subprocess.run(
        ["cp", "--archive", f"{unpacked}/etc", f"{unpacked}/usr", f"{unpacked}/lib", root], check=True
    )
    subprocess.run(
        [tool("gcc"), "-shared", f"-Wl,-soname,{SONAME}", "-o", driver, "-xc", "/dev/null"], check=True
    )
    (root / "opt/driver").mkdir(parents=True)
    (root / "opt/driver" / SONAME).write_bytes(driver.read_bytes())
    (root / "etc/ld.so.conf.d/00-nvcr-1.conf").write_text("/opt/driver\n")

    ldconfig = ["/sbin/ldconfig", "-r", root, "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache"]
    subprocess.run(ldconfig, check=True)

    mounts = (f"{driver}:/opt/driver/{SONAME}:ro", f"{root}/etc/ld.so.cache:/etc/ld.so.cache:ro")
    code = f"import ctypes; print(ctypes.CDLL('{SONAME}')._name)"
    assert _python(image, code, *(f"--volume={mount}" for mount in mounts)) == f"{SONAME}\n"


def test_the_bill_lists_exactly_the_distributions(unpacked: Path):
    """In the same versions; the program is one."""
    bill = _bill(unpacked)
    listed = {
        (component["name"].lower().replace("_", "-"), component["version"])
        for component in (*bill["components"], bill["metadata"]["component"])
        if component.get("purl", "pkg:pypi/").startswith("pkg:pypi/")
    }

    assert listed == _distributions(unpacked)
    assert ("gpuslice-exporter", _project()["version"]) in listed


def test_the_bill_lists_the_packages_of_debian_as_scanners_find_them(unpacked: Path):
    """Each package with a file in the image is in the bill and in the folder that scanners read."""
    purls = [component["purl"] for component in _bill(unpacked)["components"] if "purl" in component]
    listed = {
        purl.removeprefix("pkg:deb/debian/").partition("?")[0]
        for purl in purls
        if purl.startswith("pkg:deb/")
    }
    known = set()
    for path in (unpacked / "var/lib/dpkg/status.d").iterdir():
        fields = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
        known.add(f"{fields['Package']}@{fields['Version']}".replace("+", "%2B"))

    assert listed == known
    assert {name.partition("@")[0] for name in listed} >= {"libc6", "libssl3t64", "zlib1g"}


def test_the_bill_names_the_interpreter_and_the_script(unpacked: Path):
    """CPython and plotly.js, which are in no package of Python."""
    names = {component["name"]: component["version"] for component in _bill(unpacked)["components"]}

    assert names["cpython"].startswith(f"{building.PYTHON}.")
    (script,) = unpacked.rglob("plotly.min.js")
    assert f"plotly.js v{names['plotly.js']}\n" in script.read_text()[:500]


def test_it_is_labelled_and_configured(image: str):
    """As the Dockerfile says: labels, command, user, port and health check."""
    document = json.loads(buildah("inspect", "--type=image", image))["Docker"]
    config = document["config"]

    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert labels["title"] == "gpuslice-exporter"
    assert labels["version"] == _project()["version"]
    assert {"description", "licenses", "revision", "base.name"} <= labels.keys()
    assert (config["Entrypoint"], config["Cmd"], config["User"]) == (["gpuslice-exporter"], [], "0:0")
    assert list(config["ExposedPorts"]) == ["9836/tcp"]
    assert config["Healthcheck"]["Test"][:3] == ["CMD", "python", "-c"]


def _project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_the_same_files_make_the_same_image(image: str):
    """A second build, from a copy with other times in another folder, has only another builder.

    Docker's format of images has the id and the host name of the container that built it; OCI's does not.
    """
    first, second = (_configuration(name) for name in (image, building.again()))

    assert first["rootfs"]["diff_ids"] == second["rootfs"]["diff_ids"]
    assert first == second


def _configuration(name: str) -> dict[str, Any]:
    image = json.loads(json.loads(buildah("inspect", "--type=image", name))["Config"])
    del image["container"], image["config"]["Hostname"], image["container_config"]["Hostname"]
    return dict(image)
