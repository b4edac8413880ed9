"""Refusals that are for good, though their error alone says no such thing.

What a driver does not tell to this process, or of such a device, it will not tell at the next sweep either:
it is not worth an error each time.
"""

from typing import Any

from exporter.hardware.calls import Calls


def ask_until_refused(
    calls: Calls, refusal: str, device: str, name: str, *arguments: Any, since: Any = None
) -> Any:
    """Ask as ``Calls.ask`` does, and never again after the error ``refusal`` (NVML's name of it)."""
    before = refusals(calls, refusal, device, name)
    answer = calls.ask(device, name, *arguments, since=since)
    if refusals(calls, refusal, device, name) > before:
        calls.refused(device, name, *arguments[1:])
    return answer


def refusals(calls: Calls, refusal: str, device: str, name: str) -> int:
    """Count how often a call has failed with this error, on a MIG device's whole GPU together."""
    return calls.errors[calls.parents.get(device, device), name, refusal]
