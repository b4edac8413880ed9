"""Functions of the fake driver, and the ctypes arguments that they read and write."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
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


def known(value: T | None, code: int = Code.NOT_SUPPORTED) -> T:
    """Return a value; refuse the call if it is None."""
    return refuse(code) if value is None else value


def at(choices: Sequence[T], place: int) -> T:
    """Return the choice that a number stands for; refuse the call if it stands for none."""
    return choices[place] if 0 <= place < len(choices) else refuse(Code.INVALID_ARGUMENT)


def code_of(name: str) -> int | None:
    """Return the code of an NVML error such as ``GPU_IS_LOST``, None if NVML has no error of that name."""
    if name == "SUCCESS":
        return Code.SUCCESS
    code: int | None = getattr(pynvml, f"NVML_ERROR_{name}", None)
    return code


def name_of(code: int) -> str:
    """Return the text of a code, as nvmlErrorString does."""
    names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    name: str = names.get(code, "Success" if code == Code.SUCCESS else f"Unknown code {code}")
    return name.removeprefix("NVML_ERROR_").replace("_", " ").capitalize()


# Values by field of a record of the library.
Record = Mapping[str, Any]
# The first argument of a function:
# "node"          none: ``run`` gets the driver instead
# "wait"          as "node", and the function may block
# "index"         the index of a GPU
# "gpu", "mig"    the handle of a GPU or of a MIG device; "any" takes both
# "whole gpu"     the handle of a GPU; NOT_SUPPORTED while MIG is enabled
# "gpu instance"  the handle of the GPU instance around MIG devices
# "pair"          the handles of two GPUs
Scope = Literal["node", "wait", "index", "gpu", "whole gpu", "mig", "any", "gpu instance", "pair"]


class Argument:
    """An argument of a call, as the binding passes it.

    Out parameters come by reference, text buffers and arrays as they are, numbers raw or wrapped, handles as
    opaque pointers.
    """

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    def target(self) -> Any:
        """The object behind a reference, or the argument itself."""
        return getattr(self.raw, "_obj", self.raw)

    @property
    def number(self) -> int:
        return int(getattr(self.target, "value", self.target))

    @property
    def address(self) -> int:
        """The pointer in a handle, 0 if this is not a handle."""
        try:
            # A cast would have the handle hold itself, for the garbage collector to find.
            return ctypes.c_void_p.from_buffer(self.raw).value or 0
        except (TypeError, ValueError):
            return 0

    def record(self, version: int | None = None) -> Any:
        """Return the record behind a reference; refuse one that is not of the ``version``."""
        require(version is None or self.target.version == version, Code.VERSION_MISMATCH)
        return self.target

    def put(self, value: int) -> None:
        self.target.value = value

    def put_handle(self, address: int) -> None:
        ctypes.cast(self.raw, ctypes.POINTER(ctypes.c_void_p))[0] = address

    def put_text(self, text: str, length: int) -> None:
        """Write text into a buffer of ``length`` bytes; refuse one that is too short."""
        encoded = text.encode()
        require(len(encoded) < length, Code.INSUFFICIENT_SIZE)
        self.target.value = encoded

    def put_length(self, length: int, array: "Argument") -> None:
        """Write the length of a list; refuse an array that is too short for it."""
        room = 0 if array.raw is None else self.number
        self.put(length)
        require(length <= room, Code.INSUFFICIENT_SIZE)

    def put_list(self, records: Sequence[Record], array: "Argument") -> None:
        """Write the number of records, and the records into an array."""
        self.put_length(len(records), array)
        _fill(array.raw, records)


def put_list(answer: Any, count: str, array: str, records: Sequence[Record]) -> None:
    """Write the number of records, and the records, into two fields of a record."""
    room = getattr(answer, count) if getattr(answer, array) else 0
    setattr(answer, count, len(records))
    require(len(records) <= room, Code.INSUFFICIENT_SIZE)
    _fill(getattr(answer, array), records)


def _fill(array: Any, records: Sequence[Record]) -> None:
    for place, values in enumerate(records):
        for name, value in values.items():
            setattr(array[place], name, value)


Write = Callable[[Sequence[Argument], Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library. It writes its result through the out parameters, or refuses the call."""

    scope: Scope
    run: Callable[..., None]  # gets the device (or the driver), and the arguments after it
    # Writes given numbers instead of the function's own; None if its result is more than numbers.
    write: Write | None = None
    with_driver: bool = False  # ``run`` gets the driver after the device


def inputs(arguments: Sequence[Argument]) -> list[int]:
    """Return the plain numbers among the arguments, without handles, buffers and out parameters."""
    values = (getattr(argument.raw, "value", argument.raw) for argument in arguments)
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
    return Function(scope, lambda device, buffer, length: buffer.put_text(read(device), length.number))


def returning(scope: Scope, read: Callable[..., int | Sequence[int]], write: Write) -> Function:
    """Return a function with the numbers of ``read`` as its result, which ``write`` writes."""

    def run(device: Any, *arguments: Argument) -> None:
        values = read(device, *inputs(arguments))
        write(arguments, (values,) if isinstance(values, int) else values)

    return Function(scope, run, write)


def _put_numbers(arguments: Sequence[Argument], values: Sequence[int]) -> None:
    references = [argument for argument in arguments if argument.target is not argument.raw]
    require(len(values) == len(references), Code.INVALID_ARGUMENT)
    for reference, value in zip(references, values, strict=True):
        reference.put(value)


def _put_record(
    fields: Sequence[str], version: int | None, arguments: Sequence[Argument], values: Sequence[int]
) -> None:
    answer = arguments[-1].record(version)
    require(len(values) == len(fields), Code.INVALID_ARGUMENT)
    for field, value in zip(fields, values, strict=True):
        setattr(answer, field, value)
