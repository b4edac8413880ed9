"""What a function of the fake driver is, and the ctypes ends of its arguments.

The binding passes what it would pass to the C library: out parameters by reference, text buffers and
arrays as they are, numbers raw or wrapped, handles as opaque pointers.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from exporter.demo.nvml_codes import INSUFFICIENT_SIZE, INVALID_ARGUMENT, refuse

# What the first argument of a function may be. "node" takes the state of the driver, "lookup" finds a
# device among all by the first argument, the others take the handle of a GPU, of a MIG device, of either.
Scope = Literal["node", "lookup", "gpu", "mig", "any"]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library: ``run`` gets the device (or the driver) and the rest of the arguments.

    It writes its answer through the out parameters, and returns nothing or an error code.
    """

    scope: Scope
    run: Callable[..., int | None]


def number(argument: Any) -> int:
    """Read a number that came raw or as a ctypes one."""
    return int(getattr(argument, "value", argument))


def text_of(argument: Any) -> str:
    """Read a C string."""
    value = getattr(argument, "value", argument)
    return (value or b"").decode(errors="replace")


def target(reference: Any) -> Any:
    """Return the object behind a reference."""
    return reference._obj  # noqa: SLF001 - the one way from byref() to its object


def put(reference: Any, value: int) -> None:
    """Write a number through an out parameter."""
    target(reference).value = value


def put_handle(reference: Any, address: int) -> None:
    """Write a device handle through an out parameter."""
    ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = address


def address_of(handle: Any) -> int:
    """Return the pointer in a device handle, 0 for what is none."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value or 0
    except (TypeError, ctypes.ArgumentError):
        return 0


def put_text(buffer: Any, length: Any, value: str) -> None:
    """Write text into a buffer of that length."""
    encoded = value.encode()
    if len(encoded) + 1 > number(length):
        refuse(INSUFFICIENT_SIZE)
    buffer.value = encoded


def numbers(scope: Scope, read: Callable[..., int | Sequence[int]]) -> Function:
    """Make a function that answers with numbers: ``read`` gets the device and the plain arguments.

    The out parameters come last, as many as ``read`` returns numbers.
    """

    def run(device: Any, *arguments: Any) -> None:
        inputs = [argument for argument in arguments if not _is_reference(argument)]
        outputs = [argument for argument in arguments if _is_reference(argument)]
        answer = read(device, *map(number, inputs))
        values = (answer,) if isinstance(answer, int) else answer
        if len(values) != len(outputs):
            refuse(INVALID_ARGUMENT)
        for reference, value in zip(outputs, values, strict=True):
            put(reference, value)

    return Function(scope, run)


def text(scope: Scope, read: Callable[..., str]) -> Function:
    """Make a function that answers with text in a buffer."""

    def run(device: Any, buffer: Any, length: Any) -> None:
        put_text(buffer, length, read(device))

    return Function(scope, run)


def _is_reference(argument: Any) -> bool:
    return hasattr(argument, "_obj")
