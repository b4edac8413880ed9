"""Quantities of Kubernetes, such as ``1500m`` and ``40Gi``, as whole numbers.

Quantities are summed exactly, as whole numbers of billionths; only a sum is rounded, up, to the scheduler's
unit of its resource. Format:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from functools import lru_cache
from typing import Final

BILLION: Final = 10**9
# The scheduler counts in 64 bits.
LARGEST: Final = (1 << 63) - 1
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# The API server writes up to 19 digits. Longer numbers would cost time without meaning an amount.
_FORM: Final = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]{0,40})(?:\.([0-9]{0,40}))?"
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)


@lru_cache(maxsize=4096)
def billionths(text: str) -> int:
    """Return a quantity as a whole number of billionths, rounded away from zero as the API server does.

    Raises ValueError, with the text, if it is not a quantity.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"not a quantity: {text[:100]!r}")
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    digits = int(f"{whole}{fraction}")
    if suffix in _BINARY:
        digits, power = digits << _BINARY[suffix], 0
    else:
        power = int(exponent) if exponent else _DECIMAL[suffix or ""]
    power += 9 - len(fraction)
    size = digits * 10**power if power >= 0 else _up(digits, 10**-power)
    return -size if sign == "-" else size


def whole_quantity(text: str) -> int | None:
    """Return a quantity that is a whole number, as those of extended resources are; else None."""
    try:
        size = billionths(text)
    except ValueError:
        return None
    return size // BILLION if size >= 0 and not size % BILLION else None


def amount(resource: str, size: int) -> int:
    """Return billionths of a resource in the scheduler's unit: millicores of ``cpu``, else whole ones."""
    unit = BILLION // 1000 if resource == "cpu" else BILLION
    whole = _up(abs(size), unit)
    return min(whole, LARGEST) if size >= 0 else -min(whole, LARGEST)


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
