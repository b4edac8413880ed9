"""Parser of Koordinator's annotation of a pod's GPUs, and the requests of its containers.

The annotation is JSON, ``{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50",...}}]}``. It is for
the whole pod, without the shares of containers. Amounts are Kubernetes quantities, as strings or numbers:
cores and memory ratio in percent of a GPU, memory in bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.model import ContainerSpec
from exporter.model.kubelet import quantity
from exporter.sharing.base.reading import parsed

LONGEST = 1 << 16
PREFIXES = ("koordinator.sh/", "kubernetes.io/")
"""Of Koordinator's resources; the last one is from before it had its own domain."""
WHOLE = "nvidia.com/gpu"
LIMITS = (
    WHOLE,
    *(f"{prefix}gpu{part}" for prefix in PREFIXES for part in ("", "-core", "-memory", "-memory-ratio")),
)
ALL = 100
MOST = 1 << 62


class Amount(NamedTuple):
    """An amount of a GPU; None if not stated."""

    cores: int | None = None  # percent
    memory: int | None = None  # bytes
    ratio: int | None = None  # percent of memory


class Given(NamedTuple):
    """One GPU of a pod."""

    minor: int
    uuid: str  # "" if the annotation has only the minor
    amount: Amount


def parse_allocated(text: str) -> tuple[Given, ...]:
    """Return the GPUs of a pod, () if it has other devices only; raises ValueError."""
    gpus = parsed(text, dict, LONGEST).get("gpu")
    if not isinstance(gpus, list | None):
        raise ValueError("gpu is not a list")  # noqa: TRY004 - one kind of error for a text
    given = tuple(map(_given, gpus or ()))
    if len({gpu.minor for gpu in given}) < len(given):
        raise ValueError("a GPU is listed twice")
    return given


def asking(containers: Sequence[ContainerSpec]) -> list[ContainerSpec]:
    """Return the containers that request a GPU; init containers only if no other container does."""
    requesting = [container for container in containers if _asked(container.limits) != Amount()]
    return [container for container in requesting if not container.init] or requesting


def asks_for_parts(containers: Iterable[ContainerSpec]) -> bool:
    """Return True if a pod requests Koordinator's own resources, and so no whole GPUs of a plugin."""
    own = set(LIMITS) - {WHOLE}
    return any(own & container.limits.keys() for container in containers)


def split(given: Amount, containers: Sequence[ContainerSpec]) -> list[Amount] | None:
    """Return the containers' requested amounts of a pod's only GPU; None if their sum is not ``given``."""
    asked = [_asked(container.limits) for container in containers]
    cores = _sum(amount.cores for amount in asked)
    ratio, memory = _sum(amount.ratio for amount in asked), _sum(amount.memory for amount in asked)
    by_ratio = ratio is not None and ratio == given.ratio
    by_memory = memory is not None and memory == given.memory
    if cores != given.cores or not (by_ratio or by_memory):
        return None
    return [Amount(amount.cores, amount.memory if by_memory else None, amount.ratio) for amount in asked]


def _asked(limits: Mapping[str, int]) -> Amount:
    whole = [limits[name] for name in _named("gpu") if name in limits]
    if not whole and WHOLE in limits:
        whole = [limits[WHOLE] * ALL]
    both = whole[0] if whole else None
    return Amount(
        cores=_first(limits, "gpu-core", both),
        memory=_first(limits, "gpu-memory", None),
        ratio=_first(limits, "gpu-memory-ratio", both),
    )


def _first(amounts: Mapping[str, int], name: str, other: int | None) -> int | None:
    return next((amounts[full_name] for full_name in _named(name) if amounts.get(full_name)), other)


def _named(name: str) -> Iterable[str]:
    return (f"{prefix}{name}" for prefix in PREFIXES)


def _sum(parts: Iterator[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _given(item: Any) -> Given:
    minor = item.get("minor") if isinstance(item, dict) else None
    if type(minor) is not int or not 0 <= minor <= 1 << 31:
        raise ValueError(f"has no minor: {str(item)[:100]!r}")
    uuid, resources = item.get("id"), item.get("resources")
    if not isinstance(uuid, str | None) or not isinstance(resources, dict | None):
        raise ValueError(f"id or resources of minor {minor} have the wrong type")  # noqa: TRY004 - as above
    ours = {name: value for name, value in (resources or {}).items() if name.startswith(PREFIXES)}
    amounts = {name: _amount(name, value) for name, value in ours.items()}
    amount = Amount(
        _first(amounts, "gpu-core", None),
        _first(amounts, "gpu-memory", None),
        _first(amounts, "gpu-memory-ratio", None),
    )
    return Given(minor, uuid if uuid and uuid.startswith("GPU-") else "", amount)


def _amount(name: str, value: Any) -> int:
    amount = quantity(value) if isinstance(value, str) else value
    if type(amount) is not int or not 0 <= amount <= MOST:
        raise ValueError(f"{name[:60]!r} is not a whole number: {str(value)[:60]!r}")
    return amount
