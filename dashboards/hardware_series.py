"""Queries with one series for each GPU or MIG device, named by node and index."""

from dashboards.panels import Query
from dashboards.promql import GPU, ON_GPUS, by_gpu, by_mig
from dashboards.shares import of_gpus

MIG = f"{GPU} · {{{{profile}}}} {{{{gi}}}}/{{{{ci}}}}"

# Drivers report the margin from Ada on, and the slowdown threshold for older GPUs.
UNTIL_SLOWDOWN = by_gpu(
    f"gpuslice_gpu_temperature_limit_margin_celsius{{{ON_GPUS}}} or "
    f"max without (threshold) (gpuslice_gpu_temperature_threshold_celsius{{{ON_GPUS}, "
    f'threshold="slowdown"}}) - gpuslice_gpu_temperature_celsius{{{ON_GPUS}}}'
)


def of_gpu(name: str, *labels: str, what: str = "", limit: bool = False) -> Query:
    """Return a query of a series of each GPU; the legend has its ``labels`` and the text ``what``."""
    return Query(of_gpus(name, *labels), _legend(GPU, labels, what), limit=limit)


def of_mig(name: str) -> Query:
    """Return a query of a series of each MIG device."""
    return Query(by_mig(f"gpuslice_{name}{{{ON_GPUS}}}"), MIG)


def both(name: str) -> tuple[Query, Query]:
    """Return queries of a series that GPUs and MIG devices have under the same name."""
    return of_gpu(f"gpu_{name}"), of_mig(f"mig_{name}")


def rate(name: str, *labels: str, what: str = "") -> Query:
    """Return a query of the rate of a counter of each GPU."""
    return Query(by_gpu(growth(name), *labels), _legend(GPU, labels, what))


def growth(name: str) -> str:
    """Return the rate of a counter of GPUs."""
    return f"rate(gpuslice_{name}{{{ON_GPUS}}}[$__rate_interval])"


def traffic(name: str, what: str) -> Query:
    """Return a query of bytes per second: from a byte counter, else from the driver's throughput."""
    throughput = f"gpuslice_{name}_bytes_per_second{{{ON_GPUS}}}"
    return Query(by_gpu(f"{growth(f'{name}_bytes_total')} or {throughput}"), f"{GPU} · {what}")


def _legend(device: str, labels: tuple[str, ...], what: str) -> str:
    words = (*(f"{{{{{label}}}}}" for label in labels), what)
    return " · ".join((device, *filter(None, words)))
