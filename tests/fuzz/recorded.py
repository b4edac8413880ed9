"""A driver's library that is asked each question once: what it wrote then, it writes again.

The fake driver works every answer out anew, which takes most of the time of a sweep. One that stands still
answers the same to the same, so that a million sweeps of it can be had for the price of their binding.
"""

import ctypes
from collections.abc import Callable
from typing import Any

Call = Callable[..., int]
# These change what the driver holds, so that each of them is run: opening and closing, sets, buffers.
LIVE = ("nvmlInit", "nvmlShutdown", "nvmlEventSet", "nvmlDeviceRegisterEvents", "nvmlGpm")
# Spoiled answers lead to questions that nobody else asks; past so many they are forgotten.
MOST_ANSWERS = 2048


class Recorded:
    """The functions of ``library``, which must be open where it is asked, and must stand still."""

    def __init__(self, library: Any) -> None:
        self.nvmlErrorString = library.nvmlErrorString
        for name, function in vars(library).items():
            if name.startswith("nvml") and name != "nvmlErrorString":
                setattr(self, name, function if name.startswith(LIVE) else _once(function))


def _once(function: Call) -> Call:
    """Ask a function each question once. The question is all bytes that it is given, of outputs too."""
    answers: dict[tuple[Any, ...], tuple[int, list[tuple[int, bytes]]]] = {}

    def call(*arguments: Any) -> int:
        memories = [getattr(each, "_obj", each) for each in arguments]
        question = _content(memories)
        known = answers.get(question)
        if known is None:
            if len(answers) >= MOST_ANSWERS:
                answers.clear()
            code = function(*arguments)
            after = _content(memories)
            changed = [place for place, content in enumerate(after) if content != question[place]]
            answers[question] = code, [(place, after[place]) for place in changed]
            return code
        code, written = known
        for place, content in written:
            ctypes.memmove(ctypes.addressof(memories[place]), content, len(content))
        return code

    return call


def _content(memories: list[Any]) -> tuple[Any, ...]:
    return tuple([each if each is None or type(each) is int else bytes(each) for each in memories])
