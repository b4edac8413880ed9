"""NvFractions: what later releases of KAI write down of a container, with its name in the key.

``nvidia.com/container.<name>.gpu-memory.request`` is an amount of memory on each GPU, as Kubernetes spells
quantities; where there is only a ``.limit``, it is the request too. KAI's binder, and nobody else, adds
``.gpus.devices`` in clusters where a limit of memory is enforced, and ``.gpu-compute.portion``.
"""

import re
from collections.abc import Mapping

from exporter.model.kubelet import quantity

PREFIX = "nvidia.com/container."
MEMORY_KEY = re.compile(r"nvidia\.com/container\.(?P<name>.+)\.gpu-memory\.(?:request|limit)")
BINDERS_KEY = re.compile(r"nvidia\.com/container\.(?P<name>.+)\.(?:gpus\.devices|gpu-compute\.portion)")
MOST = 1 << 62

_DECIMAL = re.compile(r"([0-9]{0,9})\.([0-9]{1,9})((?![0-9]).{0,3})")


def asking(annotations: Mapping[str, str]) -> list[str]:
    """List the containers that ask for memory; KAI lets no pod have more than one."""
    return sorted({match["name"] for key in annotations if (match := MEMORY_KEY.fullmatch(key))})


def memory_key(annotations: Mapping[str, str], container: str) -> str:
    """Return the key that says how much memory a container asks for: its limit where it has no request."""
    request, limit = (f"{PREFIX}{container}.gpu-memory.{name}" for name in ("request", "limit"))
    return request if request in annotations else limit


def portion_key(container: str) -> str:
    """Return the key of the part of each GPU's compute that a container was given."""
    return f"{PREFIX}{container}.gpu-compute.portion"


def is_limited(annotations: Mapping[str, str], container: str) -> bool:
    """Whether the binder handed a container to what enforces its limit."""
    return bool(annotations.get(f"{PREFIX}{container}.gpus.devices"))


def memory(text: str) -> int | None:
    """Read a positive amount of bytes (``7680Mi``, ``1.5Gi``); None for anything else."""
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        amount = quantity(text)
    else:
        amount = quantity(f"{decimal[1]}{decimal[2]}{decimal[3]}")
        amount = None if amount is None else amount // 10 ** len(decimal[2])
    return amount if amount and amount <= MOST else None
