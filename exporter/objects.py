"""What is kept of the objects of Kubernetes, whichever way they come."""

import re
from collections.abc import Mapping

# kubectl's copy of the whole object; managers write as much in others.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# So much of one object is kept; Kubernetes itself lets an object have four times as much.
MOST_ANNOTATIONS = 1 << 16
# A sum of container limits of extended resources is a whole number; large ones have a suffix.
_QUANTITY = re.compile(r"([0-9]{1,18})(?:[eE]([0-9]{1,2})|(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")
_SUFFIXES: dict[str, int] = {"": 1} | {
    suffix: base**power
    for base, suffixes in ((1000, "k M G T P E"), (1024, "Ki Mi Gi Ti Pi Ei"))
    for power, suffix in enumerate(suffixes.split(), start=1)
}


def quantity(text: str) -> int | None:
    """Read a quantity of Kubernetes that is a whole number (``2``, ``16Gi``); None for any other."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    if exponent is not None:
        return int(number + "0" * int(exponent))
    return int(number) * _SUFFIXES[suffix or ""]


def extended_resources(limits: Mapping[str, str]) -> dict[str, int]:
    """Keep the limits that are extended resources: those with a domain in their name."""
    found = {name: quantity(text) for name, text in limits.items() if "/" in name}
    return {name: amount for name, amount in found.items() if amount is not None}


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Leave out what is far too long to be about a GPU: of too many the longest.

    Whoever may make pods may fill the annotations of each, and those of all pods are kept at once.
    """
    kept, room = set[str](), MOST_ANNOTATIONS
    for name in sorted(annotations.keys() - {LAST_APPLIED}, key=lambda name: (len(annotations[name]), name)):
        room -= len(name) + len(annotations[name])
        if room < 0:
            break
        kept.add(name)
    return {name: text for name, text in annotations.items() if name in kept}
