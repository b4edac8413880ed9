"""A fake driver under the binding whose answers an input spoils, and the boards that it has."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, TypeVar

import pynvml

from exporter.demo.nvml import FakeNvml
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import Library
from tests.together.fuzz.noisy import Noisy, Tape
from tests.together.fuzz.recorded import Recorded

T = TypeVar("T")


class Renewed(Generic[T]):
    """Returns the result of ``make``, and a new one after ``inputs`` inputs.

    The fake driver remembers every buffer and event set.
    """

    def __init__(self, make: Callable[[], T], inputs: int = 256) -> None:
        self._make, self._inputs = make, inputs
        self._given = 0
        self._made: T | None = None

    def __call__(self) -> T:
        """Return it for one input."""
        if self._made is None or self._given % self._inputs == 0:
            self._made = self._make()
        self._given += 1
        return self._made


class Spoiled:
    """A fake driver, and ``library`` over it, for the binding.

    ``still``: it stands still, so that its answers are recorded.
    """

    def __init__(self, driver: FakeNvml, *, still: bool = True) -> None:
        # Held open, so that no answer of a closed driver is recorded.
        driver.open()
        self.library = Noisy(Recorded(driver) if still else driver)

    @contextmanager
    def opened(self, content: bytes) -> Iterator[Calls]:
        """Open it, and spoil all later answers with the input."""
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
        """Spoil the answers within with an input."""
        self.library.tape = Tape(content)
        try:
            yield
        finally:
            self.library.tape = Tape()

    @cached_property
    def handles(self) -> Mapping[str, Any]:
        """The handles of the GPUs by uuid; first used while the driver is open and not spoiled."""
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {pynvml.nvmlDeviceGetUUID(handle): handle for handle in handles}
