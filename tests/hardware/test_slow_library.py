"""A library whose start-up code takes its time: other threads of the exporter do not wait for it."""

import ctypes
import subprocess
import threading
import time
from collections.abc import Callable
from ctypes import CDLL, c_int
from pathlib import Path
from typing import Any

import pytest

from exporter.nvml.driver import library
from exporter.nvml.driver.library import DriverError, Library

SECONDS = 2
SOURCE = """
#include <unistd.h>
int started;
__attribute__((constructor)) static void start(void) { usleep(SECONDS * 1000000); started++; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
"""
# A thread that sleeps 5 ms at a time has 400 turns in 2 s, and none while it is held up.
ENOUGH_TURNS = 20


def built(folder: Path, name: str = "libslow.so", seconds: float = SECONDS) -> Path:
    """Compile the library."""
    path = folder / name
    words = ["cc", "-shared", "-fPIC", f"-DSECONDS={seconds}", "-x", "c", "-", "-o", str(path)]
    subprocess.run(words, input=SOURCE, text=True, check=True, timeout=60)
    return path


def turns_during(action: Callable[[], Any]) -> int:
    """Return how often this thread had its turn while an action ran in another."""
    thread = threading.Thread(target=action, daemon=True)
    turns = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.005)
        turns += 1
    return turns


def started(path: Path) -> int:
    """Return how often the start-up code of a library has run."""
    return c_int.in_dll(CDLL(str(path)), "started").value


def without(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Take away the loader's function: the program itself cannot be looked into, or has none."""

    def load(path: str | None) -> Any:
        if path is not None:
            return CDLL(path)
        if error is not None:
            raise error
        return object()

    monkeypatch.setattr(library, "CDLL", load)


@pytest.mark.slow
def test_a_named_library_that_starts_slowly_holds_up_no_other_thread(tmp_path: Path):
    """It is loaded, initialised and started once."""
    path = built(tmp_path)
    opened = Library(path)
    assert turns_during(opened.open) >= ENOUGH_TURNS
    assert opened.is_open
    assert started(path) == 1
    opened.close()


@pytest.mark.slow
def test_a_library_that_is_searched_for_holds_up_no_other_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is found below a driver's root, after one that has none."""
    path = built(tmp_path, "libsearched.so.1")
    monkeypatch.setattr(library, "SONAME", path.name)
    monkeypatch.setattr(library, "DRIVER_ROOTS", ("/nowhere", str(tmp_path)))
    opened = Library()
    assert turns_during(opened.open) >= ENOUGH_TURNS
    assert opened.is_open
    assert started(path) == 1
    opened.close()


@pytest.mark.parametrize("error", [None, OSError("no dynamic loader"), TypeError("no name")])
def test_without_the_loaders_function_a_library_is_loaded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
):
    """Not every system has it."""
    path = built(tmp_path, seconds=0)
    without(monkeypatch, error)
    opened = Library(path)
    opened.open()
    assert started(path) == 1
    opened.close()


def test_what_cannot_be_loaded_is_said_as_the_loader_says_it(tmp_path: Path):
    """Of a file that is none, and of one that is no library."""
    text = tmp_path / "text.so"
    text.write_text("no library")
    for path in (tmp_path / "none.so", text):
        with pytest.raises(OSError, match=path.name) as caught:
            ctypes.CDLL(str(path))
        with pytest.raises(DriverError) as failed:
            Library(path).open()
        assert failed.value.reason == "LibraryNotFound"
        assert str(failed.value) == f"--nvml-library {path} cannot be loaded: {caught.value}"
