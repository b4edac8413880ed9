"""What a function of the fake driver is, and the ctypes ends of its arguments.

The binding passes what it would pass to the C library: out parameters by reference, text buffers and
arrays as they are, numbers raw or wrapped, handles as opaque pointers.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

import pynvml

T = TypeVar("T")
SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
VERSION_MISMATCH = 25


class RefusedError(Exception):
    """A call that the driver answers with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def refuse(code: int) -> NoReturn:
    """Answer the call with an error code."""
    raise RefusedError(code)


def require(condition: object, code: int = NOT_SUPPORTED) -> None:
    """Refuse the call unless the condition holds."""
    if not condition:
        refuse(code)


def known(value: T | None) -> T:
    """Return a value; refuse the call if it is None."""
    return refuse(NOT_SUPPORTED) if value is None else value


def code_of(name: str) -> int | None:
    """Return the code of an NVML error such as ``GPU_IS_LOST``, None for a name that NVML does not have."""
    if name == "SUCCESS":
        return SUCCESS
    code = getattr(pynvml, f"NVML_ERROR_{name}", None)
    return code if isinstance(code, int) else None


def name_of(code: int) -> str:
    """Return what nvmlErrorString says of a code."""
    names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    name: str = names.get(code, "Success" if code == SUCCESS else f"Unknown code {code}")
    return name.removeprefix("NVML_ERROR_").replace("_", " ").capitalize()


# What the first argument of a function may be. "node" takes the state of the driver, "lookup" finds a
# device among all by the first argument, the others take the handle of a GPU, of a MIG device, of either;
# "gpu instance" that of what is around MIG devices, "pair" takes those of two GPUs. "wait" takes the state of
# the driver and may block, "registration" takes the handle of a GPU and then the state of the driver.
Scope = Literal["node", "lookup", "gpu", "mig", "gpu instance", "any", "pair", "wait", "registration"]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library: ``run`` gets the device (or the driver) and the rest of the arguments.

    It writes its answer through the out parameters, or refuses the call. ``write`` puts given numbers in the
    place of an answer, if an answer consists of numbers only.
    """

    scope: Scope
    run: Callable[..., None]
    write: Callable[[Sequence[Any], Sequence[int]], None] | None = None


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
        # A cast would have the handle hold itself, for the garbage collector to find.
        return ctypes.c_void_p.from_buffer(handle).value or 0
    except (TypeError, ValueError):
        return 0


def put_length(count: Any, array: Any, length: int) -> None:
    """Write the length of a list; refuse an array that is too short for the list."""
    room = 0 if array is None else number(target(count))
    put(count, length)
    require(length <= room, INSUFFICIENT_SIZE)


def put_text(buffer: Any, length: Any, value: str) -> None:
    """Write text into a buffer of that length."""
    encoded = value.encode()
    require(len(encoded) < number(length), INSUFFICIENT_SIZE)
    buffer.value = encoded


def inputs(arguments: Sequence[Any]) -> list[int]:
    """Return the plain numbers that a call is given, leaving out handles, buffers and out parameters."""
    found = (getattr(argument, "value", argument) for argument in arguments)
    return [value for value in found if isinstance(value, int)]


def numbers(scope: Scope, read: Callable[..., int | Sequence[int]]) -> Function:
    """Return a function that answers with numbers: ``read`` gets the device and the plain arguments.

    The out parameters come last, as many as ``read`` returns numbers.
    """
    return _answering(scope, read, _put_numbers)


def record(
    scope: Scope, fields: Sequence[str], read: Callable[..., int | Sequence[int]], version: int | None = None
) -> Function:
    """Return a function that fills these fields of a record, behind the one out parameter.

    A record with a ``version`` is refused when it carries another one.
    """
    return _answering(scope, read, partial(_put_record, fields, version))


def _answering(
    scope: Scope,
    read: Callable[..., int | Sequence[int]],
    write: Callable[[Sequence[Any], Sequence[int]], None],
) -> Function:
    def run(device: Any, *arguments: Any) -> None:
        answer = read(device, *inputs(arguments))
        write(arguments, (answer,) if isinstance(answer, int) else answer)

    return Function(scope, run, write)


def _put_numbers(arguments: Sequence[Any], values: Sequence[int]) -> None:
    references = [argument for argument in arguments if hasattr(argument, "_obj")]
    require(len(values) == len(references), INVALID_ARGUMENT)
    for reference, value in zip(references, values, strict=True):
        put(reference, value)


def _put_record(
    fields: Sequence[str], version: int | None, arguments: Sequence[Any], values: Sequence[int]
) -> None:
    answer = target(arguments[-1])
    require(version is None or answer.version == version, VERSION_MISMATCH)
    require(len(values) == len(fields), INVALID_ARGUMENT)
    for field, value in zip(fields, values, strict=True):
        setattr(answer, field, value)


def text(scope: Scope, read: Callable[..., str]) -> Function:
    """Return a function that answers with text in a buffer."""

    def run(device: Any, buffer: Any, length: Any) -> None:
        put_text(buffer, length, read(device))

    return Function(scope, run)
