"""A library whose start-up code takes its time: other threads of the exporter run meanwhile."""

import ctypes
import subprocess
import threading
from ctypes import CDLL, c_int
from pathlib import Path
from typing import Any

import pytest

from exporter.nvml.driver import library
from exporter.nvml.driver.library import DriverError, Library
from tests.core.hardware.tiny import compiler
from tests.waiting import wait_until

# It starts when the file GATE exists. If it held up the thread that makes the file, it would time out.
SOURCE = """
#include <unistd.h>
int started, timed_out;
__attribute__((constructor)) static void start(void)
{
    close(open(BEGUN, 0101, 0600));
    for (int waits = 0; access(GATE, F_OK) != 0; waits++) {
        if (waits == 60000) { timed_out = 1; break; }
        usleep(1000);
    }
    started++;
}
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
"""


def built(folder: Path, name: str = "libslow.so") -> Path:
    """Compile the library; its start-up code waits for the file ``gate`` in the same folder."""
    path = folder / name
    files = [f'-DGATE="{folder / "gate"}"', f'-DBEGUN="{folder / "begun"}"']
    command = [compiler(), "-shared", "-fPIC", *files, "-include", "fcntl.h", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return path


def value(path: Path, name: str) -> int:
    """Return a variable of a library."""
    return c_int.in_dll(CDLL(str(path)), name).value


@pytest.mark.parametrize("named", [True, False])
def test_a_library_that_starts_slowly_holds_up_no_other_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
):
    """Whether its path is given or it is found below a driver root; it is started once."""
    path = built(tmp_path, "libsearched.so.1")
    monkeypatch.setattr(library, "SONAME", path.name)
    monkeypatch.setattr(library, "DRIVER_ROOTS", ("/nowhere", str(tmp_path)))
    opened = Library(path) if named else Library()
    thread = threading.Thread(target=opened.open, daemon=True)
    thread.start()
    wait_until((tmp_path / "begun").exists)
    assert not opened.is_open
    (tmp_path / "gate").touch()
    thread.join()
    assert opened.is_open
    assert (value(path, "started"), value(path, "timed_out")) == (1, 0)
    opened.close()


@pytest.mark.parametrize("error", [None, OSError("no dynamic loader"), TypeError("no name")])
def test_a_library_is_loaded_without_the_function_of_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
):
    """Not every system lets a program look into itself, or has that function."""

    def load(path: str | None) -> Any:
        if path is not None:
            return CDLL(path)
        if error is not None:
            raise error
        return object()

    path = built(tmp_path)
    (tmp_path / "gate").touch()
    monkeypatch.setattr(library, "CDLL", load)
    opened = Library(path)
    opened.open()
    assert value(path, "started") == 1
    opened.close()


@pytest.mark.parametrize("exists", [False, True])
def test_an_error_of_the_loader_is_reported_in_its_words(tmp_path: Path, exists: bool):
    path = tmp_path / "text.so"
    if exists:
        path.write_text("no library")
    with pytest.raises(OSError, match=path.name) as loading:
        ctypes.CDLL(str(path))
    with pytest.raises(DriverError) as opening:
        Library(path).open()
    assert opening.value.reason == "LibraryNotFound"
    assert str(opening.value) == f"--nvml-library {path} cannot be loaded: {loading.value}"
