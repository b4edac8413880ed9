"""A page of metrics in tests: read by prometheus_client's parser, or as a golden page."""

import functools
import re
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

MASKED = {
    # Durations, and times by the clock of the machine that runs the tests.
    "gpuslice_allocations_timestamp_seconds",
    "gpuslice_collector_duration_seconds",
    "gpuslice_collector_last_success_timestamp_seconds",
    "gpuslice_gpu_attribution_disagreement_explained_ratio",
    "gpuslice_gpu_read_timestamp_seconds",
    "gpuslice_gpu_slow_read_timestamp_seconds",
    "gpuslice_gpu_xid_last_timestamp_seconds",
    "gpuslice_nvml_call_seconds_total",
}
"""Series whose values differ from run to run."""
_OF_THIS_PROCESS = ("gpuslice_build_info", "gpuslice_render_duration_seconds", "process_", "python_info")
_DCGM = ("DCGM_", "dcgm_")
# They change with every reading that is added: call_budgets.toml has them.
COSTS = ("gpuslice_nvml_calls_total", "gpuslice_nvml_unsupported")
_SAMPLE = re.compile(r"(?P<name>\w+)(?P<labels>\{.*\})? (?P<value>\S+)")


# Python 3.12 adds floats up more exactly than 3.11: the last digits are not compared.
_DECIMALS = 9


def reviewed(text: str, *, dcgm: bool) -> list[str]:
    """Return the samples of a page that a golden page has, without HELP and TYPE.

    Values that differ from run to run are NaN. Series of the process that runs the tests and numbers of calls
    are left out, and without ``dcgm`` all names of DCGM.
    """
    left_out = ("# ", *_OF_THIS_PROCESS, *COSTS, *(() if dcgm else _DCGM))
    lines = (line for line in text.splitlines() if not line.startswith(left_out))
    return [_masked_line(line) for line in lines]


def headers(text: str) -> set[str]:
    """Return the HELP and TYPE lines of a page."""
    return {line for line in text.splitlines() if line.startswith("# ")}


def _masked_line(line: str) -> str:
    sample = _SAMPLE.fullmatch(line)
    assert sample is not None, line
    value = "NaN" if sample["name"] in MASKED else _rounded(sample["value"])
    return f"{sample['name']}{sample['labels'] or ''} {value}"


def _rounded(value: str) -> str:
    return repr(round(float(value), _DECIMALS)) if "." in value else value


Labels = dict[str, str]


class Page:
    """The samples of a page by name."""

    def __init__(self, text: str) -> None:
        self._text = text

    @functools.cached_property
    def samples(self) -> list[tuple[str, Labels, float]]:
        """All samples; a page is parsed at the first use, as many are not used."""
        return [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(self._text)
            for sample in family.samples
        ]

    @functools.cached_property
    def _by_name(self) -> dict[str, list[tuple[Labels, float]]]:
        by_name: dict[str, list[tuple[Labels, float]]] = {}
        for name, labels, value in self.samples:
            by_name.setdefault(name, []).append((labels, value))
        return by_name

    def series(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """Yield all labels and the value of each series with these labels; "" matches an absent label."""
        for present, value in self._by_name.get(name, ()):
            if all(present.get(key, "") == wanted for key, wanted in labels.items()):
                yield present, value

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one sample with these labels, None if it is absent."""
        values = [value for _, value in self.series(name, **labels)]
        assert len(values) <= 1, f"{name} {labels} has {len(values)} samples"
        return values[0] if values else None

    def labels(self, name: str, **labels: str) -> Labels:
        """Return all labels of the one series with these labels."""
        ((present, _),) = self.series(name, **labels)
        return present
