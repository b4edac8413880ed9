"""The MIG profiles of each GPU model, asked of the driver once: they do not change with the partitioning.

The driver reports them also while MIG mode is disabled. Profiles are numbered over all boards, and each board
has some of them.
"""

import re
from typing import Any

from exporter.model import GpuIdentity
from exporter.model.mig_profiles import MEBIBYTE, MigProfile, MigProfiles, listed_profiles
from exporter.nvml.driver.calls import Calls
from exporter.nvml.mig_facts import MOST_MEBIBYTES, REFUSAL
from exporter.nvml.readings.answers import ask_until_refused, number

# The numbers go on where today's end, at 17.
MOST_PROFILES = 32
_NAME = re.compile(r"MIG (\d{1,2}g\.\d{1,4}gb(?:[+-][a-z.]{1,16})?)", re.ASCII)
REPORT = "nvmlDeviceGetGpuInstanceProfileInfo"


class ProfileReader:
    """Keeps the MIG profiles: those that a driver reports by model of GPU, those of the table by GPU."""

    def __init__(self) -> None:
        self._reported: dict[str, MigProfiles] = {}
        # By uuid of the GPUs that were asked.
        self._listed: dict[str, MigProfiles | None] = {}
        self._incomplete: set[str] = set()

    def read(
        self, calls: Calls, identity: GpuIdentity, handle: Any, memory: int | None, *, slow: bool
    ) -> MigProfiles | None:
        """Return the profiles of a GPU that has a MIG mode, with ``memory`` bytes; None if they are unknown.

        After an incomplete answer the driver is asked again with ``slow``. Raises as ``Calls.ask`` does.
        """
        model, uuid = identity.model, identity.uuid
        if not model:
            return None
        due = uuid not in self._listed or (slow and uuid in self._incomplete)
        if due and model not in self._reported:
            failures = calls.failures()
            profiles = tuple(_profiles(calls, uuid, handle))
            complete = calls.failures() == failures
            if profiles and complete:
                self._reported[model] = MigProfiles("driver", profiles)
            self._listed[uuid] = listed_profiles(model, memory)
            self._incomplete.discard(uuid)
            if not complete or memory is None:
                self._incomplete.add(uuid)
        return self._reported.get(model) or self._listed.get(uuid)

    def forget(self, identity: GpuIdentity | None = None) -> None:
        """Ask again about the model of a GPU, or about all: the driver or the MIG mode has changed."""
        if identity is None:
            self._reported.clear()
            self._listed.clear()
        else:
            self._reported.pop(identity.model, None)
            self._listed.pop(identity.uuid, None)
            self._incomplete.discard(identity.uuid)


def _profiles(calls: Calls, uuid: str, handle: Any) -> list[MigProfile]:
    calls.group = "modes"
    ask = (calls, REFUSAL, uuid, REPORT, handle)
    answers = (ask_until_refused(*ask, place) for place in range(MOST_PROFILES))
    return [profile for answer in answers if answer is not None and (profile := _profile(answer))]


def _profile(answer: Any) -> MigProfile | None:
    # The binding's own access to the field raises for bytes that are not UTF-8.
    raw: bytes = object.__getattribute__(answer, "name")
    match = _NAME.fullmatch(raw.decode(errors="replace"))
    if match is None:
        return None
    size = answer.memorySizeMB
    return MigProfile(
        name=match[1],
        memory=size * MEBIBYTE if 0 < size <= MOST_MEBIBYTES else None,
        multiprocessors=number(answer.multiprocessorCount) or None,
        instances=number(answer.instanceCount) or None,
    )
