"""What the binding answers, as values of Python."""

from ctypes import _SimpleCData
from typing import Any


def plain(answer: Any) -> Any:
    """Turn the binding's mixture of bytes, ctypes numbers and Python values into the last."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, _SimpleCData):
        return answer.value
    return answer
