"""The programs that scripts/stack runs: it starts them, waits for their answers, and ends all of them."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0
# Beyond this a program is ended the hard way.
LAST_WORDS = 10.0


class StackError(Exception):
    """Something cannot be started, or has ended; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Running:
    """A program that runs; its own words are in ``log``."""

    name: str
    process: "subprocess.Popen[str]"
    log: Path

    def failed(self) -> StackError:
        """Say that it has ended by itself, with its last words."""
        said = self.log.read_text(errors="replace").strip().splitlines()[-5:]
        return StackError("\n  ".join([f"{self.name} ended with code {self.process.wait()}:", *said]))


class Stack:
    """Starts programs that write into ``folder`` only, and ends all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[Running] = []

    def start(
        self,
        name: str,
        command: Sequence[object],
        more: Mapping[str, str] | None = None,
        *,
        announces: bool = False,
    ) -> Running:
        """Start a program; ``more`` is for its environment, and one that announces its URL is listened to."""
        log = self.folder / f"{name}.log"
        with log.open("w") as words:
            process = subprocess.Popen(  # noqa: S603 - programs that were found on PATH
                [str(word) for word in command],
                cwd=ROOT,
                env=os.environ | (more or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if announces else words,
                stderr=words,
                text=True,
            )
        self.running.append(Running(name, process, log))
        return self.running[-1]

    def until(self, url: str) -> None:
        """Wait until there is an answer. Raises StackError if there is none or a program has ended."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.check()
            try:
                with urlopen(url, timeout=5):  # noqa: S310 - a URL of ours
                    return
            except (OSError, HTTPException):
                time.sleep(0.1)
        raise StackError(f"{url} has not answered for {PATIENCE:.0f} s")

    def check(self) -> None:
        """Raise StackError if a program has ended by itself."""
        for each in self.running:
            if each.process.poll() is not None:
                raise each.failed()

    def announced(self, each: Running) -> str:
        """Wait for the URL that a program announces."""
        words = next(iter(each.process.stdout or ()), "").split()
        if not words:
            raise each.failed()
        return words[-1].removesuffix("/")

    def end(self) -> None:
        """End all of them, whatever they do."""
        for each in reversed(self.running):
            each.process.terminate()
        for each in self.running:
            try:
                each.process.wait(LAST_WORDS)
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
