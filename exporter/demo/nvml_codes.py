"""NVML's return codes by name, and how the fake driver's functions refuse a call."""

from typing import NoReturn

import pynvml

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
