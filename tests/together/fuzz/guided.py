"""One guided run: atheris makes the inputs, and goes on from those that reach code that none reached before.

    python -m tests.together.fuzz.guided TARGET FOLDER --inputs 1000000 --seconds 0
    python -m tests.together.fuzz.guided --serve

The second form reads such arguments, as a list in JSON, from each line of its input, and answers with a line
when that run has ended. Its output is in FOLDER/TARGET.log. Loading the program takes as long as a short run.

Only the modules that the target covers are instrumented, which makes them several times slower. It runs in a
process of its own, because libFuzzer ends the process. What is found does not end the run: each kind of
finding is written to the folder once, and counted. The last line of its output is the result as JSON.
"""

import argparse
import contextlib
import hashlib
import importlib
import inspect
import json
import math
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType

import atheris

from tests.together.fuzz.every import TARGETS
from tests.together.fuzz.growth import superlinear
from tests.together.fuzz.seeds import remove_all
from tests.together.fuzz.target import Target, examine

LONGEST_INPUT = 4096
# An input of some kilobytes is slow if it takes this many times the CPU time of the reference, which is some
# milliseconds, and does so several times in a row.
SLOW_RATIO, SLOW_TRIES, REFERENCE_STEPS = 200, 3, 300_000
# libFuzzer ends the process if one input hangs, or takes more memory.
HUNG_SECONDS, MOST_MEGABYTES = 600, 2048
# One input in so many is decoded twice.
TWICE_EVERY = 16


@dataclass(slots=True)
class Result:
    """What came of a run; ``slowest`` is the processor's time for one input, ``findings`` are by kind."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    megabytes: int = 0
    findings: dict[str, str] = field(default_factory=dict)


class Run:
    """Hands inputs to a target, and notes what it finds."""

    def __init__(self, target: Target, folder: Path, *, inputs: int, seconds: int) -> None:
        self._target, self._folder = target, folder
        self._inputs, self._seconds = inputs, seconds
        self._reference = _reference_seconds()
        self._began = time.process_time()
        self.result = Result(target.name)

    def one(self, content: bytes) -> None:
        """Examine one input."""
        self.result.inputs += 1
        began = time.process_time()
        try:
            examine(self._target, content, twice=self.result.inputs % TWICE_EVERY == 0)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            self.found(kind_of(error), content)
        spent = time.process_time() - began
        if spent > max(self.result.slowest, SLOW_RATIO * self._reference):
            spent = min(spent, *(self._again(content) for _ in range(SLOW_TRIES - 1)))
            if spent > SLOW_RATIO * _reference_seconds():
                self.found("slow", content)
        self.result.slowest = max(self.result.slowest, spent)
        if self.result.inputs == self._inputs or began - self._began > (self._seconds or math.inf):
            self._end()

    def found(self, kind: str, content: bytes) -> None:
        """Note a finding, and keep the first input that shows it."""
        if kind not in self.result.findings:
            path = self._folder / f"{self._target.name}-{hashlib.sha256(content).hexdigest()[:12]}"
            path.write_bytes(content)
            self.result.findings[kind] = str(path)

    def _end(self) -> None:
        """Print what came of it; libFuzzer itself would leave without a word of ours."""
        self.result.seconds = round(time.process_time() - self._began, 1)
        self.result.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        sys.stdout.write(f"{json.dumps(asdict(self.result))}\n")
        sys.stdout.flush()
        remove_all()
        os._exit(0)

    def _again(self, content: bytes) -> float:
        began = time.process_time()
        # What it raises is noted already.
        with contextlib.suppress(Exception):
            self._target.decode(content)
        return time.process_time() - began


def _reference_seconds() -> float:
    """Return the CPU time of some work that takes milliseconds."""
    began = time.process_time()
    sum(range(REFERENCE_STEPS))
    return time.process_time() - began


def instrument(modules: Iterable[str]) -> None:
    """Have all functions of some modules report which of their branches are taken."""
    for name in modules:
        for function in functions_of(importlib.import_module(name)):
            atheris.instrument_func(function)


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions that are written in a module, those of its classes too."""
    kinds = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    ]
    seen = set[FunctionType]()
    for place in (module, *kinds):
        for each in vars(place).values():
            found = inspect.unwrap(getattr(each, "__func__", getattr(each, "fget", None) or each))
            ours = isinstance(found, FunctionType) and found.__code__.co_filename == module.__file__
            if ours and found not in seen:
                seen.add(found)
                yield found


def kind_of(error: Exception) -> str:
    """Name a kind of failure: the error, and the line of the product that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "/tests/" not in each.filename] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""
    text = str(error).split("holds", maxsplit=1)[0] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {place} {text[:80]}".strip()


def serve() -> None:
    """Run what each line of the input asks for, in a process of its own that has all modules already."""
    for line in sys.stdin:
        asked = json.loads(line)
        if (child := os.fork()) == 0:
            log = os.open(f"{asked[1]}/{asked[0]}.log", os.O_WRONLY | os.O_CREAT)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(log, stream.fileno())
            try:
                run(asked)
            finally:
                # Only what was not fuzzed comes here.
                traceback.print_exc()
                os._exit(1)
        sys.stdout.write(f"{os.waitpid(child, 0)[1]}\n")
        sys.stdout.flush()


def run(arguments: Sequence[str]) -> None:
    """Run one target; it ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=0)
    asked = parser.parse_args(arguments)
    target = next(each for each in TARGETS if each.name == asked.target)
    grown = list(superlinear(target))
    instrument(target.covers)
    seeds = asked.folder / f"seeds-{target.name}"
    seeds.mkdir(parents=True, exist_ok=True)
    for place, seed in enumerate(target.seeds()):
        (seeds / str(place)).write_bytes(seed)
    words = asked.folder / f"words-{target.name}"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words), encoding="ascii")
    guided = Run(target, asked.folder, inputs=asked.inputs, seconds=asked.seconds)
    for kind, content in grown:
        guided.found(f"superlinear {kind}", content)
    longest = max(LONGEST_INPUT, *(2 * len(seed) for seed in target.seeds()))
    options = {
        "max_len": longest,
        "timeout": HUNG_SECONDS,
        "rss_limit_mb": MOST_MEGABYTES,
        "artifact_prefix": f"{asked.folder}/{target.name}-",
        "seed": 1,
    }
    if target.words:
        options["dict"] = words
    told = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *told, str(seeds)], guided.one)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else run(sys.argv[1:])
