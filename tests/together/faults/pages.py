"""A page of metrics that is read thousands of times: samples by the text of their series."""

import functools
import re
from collections.abc import Iterator, Mapping

Labels = Mapping[str, str]

# Labels of DCGM's series that repeat the info series of the GPU. Without them the series are the same.
_REPEATED = re.compile(r',(?:modelName|pci_bus_id|device|GPU_I_PROFILE|DCGM_FI_DRIVER_VERSION)="[^"]*"')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@functools.cache
def labels_of(series: str) -> Labels:
    """Return the labels of a series, as they are written."""
    return dict(_LABEL.findall(series.partition("{")[2]))


@functools.cache
def name_of(series: str) -> str:
    """Return the name of the family (with ``_total`` and the like) of a series."""
    return series.partition("{")[0]


@functools.cache
def _plain(series: str) -> str:
    return _REPEATED.sub("", series)


@functools.lru_cache(maxsize=1 << 16)
def _sample(line: str) -> tuple[str, float]:
    """Return the series and the value of a line; most lines of a page are those of the page before."""
    series, _, value = line.rpartition(" ")
    return (_plain(series) if series.startswith("DCGM") else series), float(value)


class Page:
    """The samples of a page in the text format. ``samples`` is the value by series as it is written.

    Of the series with DCGM's names what identifies the GPU is its UUID alone.
    """

    def __init__(self, text: str) -> None:
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        self.samples: dict[str, float] = dict(map(_sample, lines))

    def series(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """Yield the series of a name that have these labels; "" is an absent label."""
        for series in self._by_name.get(name, ()):
            found = labels_of(series)
            if all(found.get(key, "") == wanted for key, wanted in labels.items()):
                yield found, self.samples[series]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one sample of a name under these labels, None if there is none."""
        values = [value for _, value in self.series(name, **labels)]
        assert len(values) <= 1, f"{name} {labels} has {len(values)} samples"
        return values[0] if values else None

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name under these labels."""
        return sum(value for _, value in self.series(name, **labels))

    @functools.cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for series in self.samples:
            found.setdefault(name_of(series), []).append(series)
        return found
