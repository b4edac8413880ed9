"""Functions of the fake driver, and the ctypes arguments that they read and write.

The binding passes what it would pass to the C library: out parameters by reference, text buffers and
arrays as they are, numbers raw or wrapped, handles as opaque pointers.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

import pynvml

T = TypeVar("T")
# The id of a MIG instance for none.
NO_INSTANCE = 0xFFFFFFFF


class Code(IntEnum):
    """Return codes of NVML (``nvmlReturn_t``)."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    GPU_IS_LOST = 15
    VERSION_MISMATCH = 25


class RefusedError(Exception):
    """A call that returns the error ``code``."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def refuse(code: int = Code.NOT_SUPPORTED) -> NoReturn:
    """Return an error code from the call."""
    raise RefusedError(code)


def require(condition: object, code: int = Code.NOT_SUPPORTED) -> None:
    """Refuse the call unless the condition holds."""
    if not condition:
        refuse(code)


def known(value: T | None) -> T:
    """Return a value; refuse the call with NOT_SUPPORTED if it is None."""
    return refuse() if value is None else value


def code_of(name: str) -> int | None:
    """Return the code of an NVML error such as ``GPU_IS_LOST``, None if NVML has no error of that name."""
    if name == "SUCCESS":
        return Code.SUCCESS
    code = getattr(pynvml, f"NVML_ERROR_{name}", None)
    return code if isinstance(code, int) else None


def name_of(code: int) -> str:
    """Return the text of a code, as nvmlErrorString does."""
    names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    name: str = names.get(code, "Success" if code == Code.SUCCESS else f"Unknown code {code}")
    return name.removeprefix("NVML_ERROR_").replace("_", " ").capitalize()


# The first argument of a function:
# "node"          none: ``run`` gets the driver instead
# "wait"          as "node", and the function may block
# "index"         the index of a GPU
# "gpu", "mig"    the handle of a GPU or of a MIG device; "any" takes both
# "gpu instance"  the handle of the GPU instance around MIG devices
# "pair"          the handles of two GPUs
Scope = Literal["node", "wait", "index", "gpu", "mig", "any", "gpu instance", "pair"]
Write = Callable[[Sequence[Any], Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library. It writes its result through the out parameters, or refuses the call."""

    scope: Scope
    run: Callable[..., None]  # gets the device (or the driver), and the arguments after it
    # Writes given numbers instead of the function's own; None if its result is more than numbers.
    write: Write | None = None
    with_driver: bool = False  # ``run`` gets the driver after the device


def number(argument: Any) -> int:
    """Return a number that was passed raw or as a ctypes object."""
    return int(getattr(argument, "value", argument))


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
    """Return the pointer in a device handle, 0 if the argument is not a handle."""
    try:
        # A cast would have the handle hold itself, for the garbage collector to find.
        return ctypes.c_void_p.from_buffer(handle).value or 0
    except (TypeError, ValueError):
        return 0


def put_length(count: Any, array: Any, length: int) -> None:
    """Write the length of a list; refuse an array that is too short for the list."""
    room = 0 if array is None else number(target(count))
    put(count, length)
    require(length <= room, Code.INSUFFICIENT_SIZE)


def put_records(answer: Any, length: str, array: str, count: int) -> None:
    """Write the length of a list into a record; refuse the call if the record's array is too short for it."""
    room = getattr(answer, length) if getattr(answer, array) else 0
    setattr(answer, length, count)
    require(count <= room, Code.INSUFFICIENT_SIZE)


def put_text(buffer: Any, length: Any, value: str) -> None:
    """Write text into a buffer of ``length`` bytes; refuse one that is too short."""
    encoded = value.encode()
    require(len(encoded) < number(length), Code.INSUFFICIENT_SIZE)
    buffer.value = encoded


def inputs(arguments: Sequence[Any]) -> list[int]:
    """Return the plain numbers among the arguments, without handles, buffers and out parameters."""
    values = (getattr(argument, "value", argument) for argument in arguments)
    return [value for value in values if isinstance(value, int)]


def numbers(scope: Scope, read: Callable[..., int | Sequence[int]]) -> Function:
    """Return a function with numbers as its result: ``read`` gets the device and the plain arguments.

    The out parameters come last, as many as ``read`` returns numbers.
    """
    return returning(scope, read, _put_numbers)


def record(
    scope: Scope, fields: str, read: Callable[..., int | Sequence[int]], version: int | None = None
) -> Function:
    """Return a function that fills the ``fields`` (separated by spaces) of the record in its out parameter.

    A record with a ``version`` is refused when the caller passes another one.
    """
    return returning(scope, read, partial(_put_record, fields.split(), version))


def text(scope: Scope, read: Callable[..., str]) -> Function:
    """Return a function that writes text into a buffer."""
    return Function(scope, lambda device, buffer, length: put_text(buffer, length, read(device)))


def returning(scope: Scope, read: Callable[..., int | Sequence[int]], write: Write) -> Function:
    """Return a function with the numbers of ``read`` as its result, which ``write`` writes."""

    def run(device: Any, *arguments: Any) -> None:
        values = read(device, *inputs(arguments))
        write(arguments, (values,) if isinstance(values, int) else values)

    return Function(scope, run, write)


def _put_numbers(arguments: Sequence[Any], values: Sequence[int]) -> None:
    references = [argument for argument in arguments if hasattr(argument, "_obj")]
    require(len(values) == len(references), Code.INVALID_ARGUMENT)
    for reference, value in zip(references, values, strict=True):
        put(reference, value)


def _put_record(
    fields: Sequence[str], version: int | None, arguments: Sequence[Any], values: Sequence[int]
) -> None:
    answer = target(arguments[-1])
    require(version is None or answer.version == version, Code.VERSION_MISMATCH)
    require(len(values) == len(fields), Code.INVALID_ARGUMENT)
    for field, value in zip(fields, values, strict=True):
        setattr(answer, field, value)
