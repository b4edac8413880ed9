"""A fake driver under the binding whose answers an input spoils, and the boards that it has."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, TypeVar

import pynvml

from exporter.demo.nvml import FakeNvml
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import Library
from tests.fuzz.noisy import Noisy, Tape
from tests.fuzz.recorded import Recorded

T = TypeVar("T")


class Renewed(Generic[T]):
    """Gives what ``make`` makes, and after so many inputs another: the fake driver forgets nothing.

    It keeps account of every buffer and event set that it ever gave out.
    """

    def __init__(self, make: Callable[[], T], inputs: int = 256) -> None:
        self._make, self._inputs = make, inputs
        self._given = 0
        self._made: T | None = None

    def __call__(self) -> T:
        """Return it, for one more input."""
        if self._made is None or self._given % self._inputs == 0:
            self._made = self._make()
        self._given += 1
        return self._made


class Spoiled:
    """A fake driver, and over it ``library``, which goes under the binding.

    ``still``: it answers the same to the same, so that it is asked only once.
    """

    def __init__(self, driver: FakeNvml, *, still: bool = True) -> None:
        # Held open, so that no answer is kept that it gives to who has not opened it.
        driver.open()
        self.library = Noisy(Recorded(driver) if still else driver)

    @contextmanager
    def opened(self, content: bytes) -> Iterator[Calls]:
        """Open it, and let the input spoil all that is asked from then on."""
        library = Library(library=self.library)
        library.open()
        _ = self.handles
        try:
            with self.by(content):
                yield Calls()
        finally:
            library.close()

    @contextmanager
    def by(self, content: bytes) -> Iterator[None]:
        """Let an input spoil what is asked meanwhile."""
        self.library.tape = Tape(content)
        try:
            yield
        finally:
            self.library.tape = Tape()

    @cached_property
    def handles(self) -> Mapping[str, Any]:
        """The GPUs by uuid, as a sweep finds them; to be asked first while the driver is open and well."""
        found = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {pynvml.nvmlDeviceGetUUID(handle): handle for handle in found}
