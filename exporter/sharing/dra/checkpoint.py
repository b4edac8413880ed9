"""What NVIDIA's DRA driver, and HAMi's that grew out of it, note of the claims that they have prepared.

The file is the driver's own and not meant for others: two versions of it stand side by side, of which the
newer counts, and its checksum is that of one very release of the driver, so that it is not verified.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporter.model import FileProblem, SystemFiles
from exporter.model.kubelet import quantity
from exporter.sharing.base.reading import UnusableError, content, problem
from exporter.sharing.base.system import Roots

# A claim takes a few kilobytes, and a node has a few hundred claims at most.
MOST_BYTES = 4 << 20
UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One device that a claim was given, ``share_id`` telling several shares of it apart.

    ``uuid`` is "" until the device is prepared. ``memory`` in bytes and ``compute`` as a share of the GPU are
    what the claim takes of a device that it shares, None where it states none. ``admin``: it has the device
    to look at, beside those who hold it.
    """

    share_id: str = ""
    uuid: str = ""
    memory: int | None = None
    compute: float | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(SystemFiles):
    """All of a checkpoint, by the uid of the claim and the driver's name of the device.

    ``missing``: there is none (any more), and what is known is from before.
    """

    prepared: Mapping[tuple[str, str], tuple[Prepared, ...]] = field(default_factory=dict)
    missing: bool = False

    def held(self) -> Mapping[tuple[str, str], tuple[Prepared, ...]]:
        """Return what claims hold now, without what administrators look at."""
        if self.missing:
            return {}
        held = {
            place: tuple(share for share in shares if not share.admin)
            for place, shares in self.prepared.items()
        }
        return {place: shares for place, shares in held.items() if shares}

    def find(self, claim_uid: str, device: str, share_id: str) -> tuple[Prepared, ...]:
        """Return the shares of a device that a claim has: one, or all where the kubelet does not say which.

        It does not where it is older, and where the driver does not tell it, as NVIDIA's.
        """
        shares = self.prepared.get((claim_uid, device), ())
        exact = tuple(share for share in shares if share.share_id == share_id)
        return exact or (() if share_id else shares)


def read_checkpoint(roots: Roots, driver: str) -> Checkpoint:
    """Read the checkpoint of a driver; where there is none, nothing is known."""
    path = roots.kubelet / "plugins" / driver / "checkpoint.json"
    try:
        return decode(content(path, MOST_BYTES), driver, path)
    except (FileNotFoundError, NotADirectoryError):
        return Checkpoint(missing=True)
    except (OSError, UnusableError) as error:
        return Checkpoint(problems=(problem(path, error),))


def with_known(now: SystemFiles, previous: SystemFiles | None) -> SystemFiles:
    """Keep what was known of claims where a checkpoint cannot be read now.

    What a claim was given does not change as long as it exists.
    """
    if not isinstance(now, Checkpoint) or not isinstance(previous, Checkpoint):
        return now
    if now.prepared or not (now.missing or now.problems):
        return now
    return replace(now, prepared=previous.prepared)


class _ShapeError(ValueError):
    """A part of a checkpoint that is not what it should be."""


def decode(encoded: bytes, driver: str, path: Path) -> Checkpoint:
    """Return what a checkpoint says; raises UnusableError where it is none."""
    try:
        document = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"is no JSON: {error}") from error
    try:
        claims = _record(_record(document, "v2") or _record(document, "v1"), "preparedClaims")
    except _ShapeError as error:
        raise UnusableError(f"is no checkpoint: {error}") from error
    prepared: dict[tuple[str, str], tuple[Prepared, ...]] = {}
    problems: list[FileProblem] = []
    for uid, claim in claims.items():
        try:
            prepared |= {(uid, device): shares for device, shares in _claim(claim, driver).items()}
        except _ShapeError as error:
            problems.append(problem(f"{path}: {uid[:64]}", error))
    return Checkpoint(prepared=prepared, problems=tuple(problems))


def _claim(claim: Any, driver: str) -> dict[str, tuple[Prepared, ...]]:
    """Return the devices of one claim: what it was given, with the uuids of what has been prepared."""
    devices: dict[str, dict[str, Prepared]] = defaultdict(dict)
    for device, share in _results(claim, driver):
        devices[device][share.share_id] = share
    for device, share_id, uuid in _uuids(claim):
        shares = devices[device]
        # NVIDIA's driver does not say which share it has prepared: all are of that device.
        for share_key in list(shares) if shares and not share_id else [share_id]:
            shares[share_key] = replace(shares.get(share_key, Prepared(share_id=share_key)), uuid=uuid)
    return {device: tuple(shares.values()) for device, shares in devices.items()}


def _results(claim: Any, driver: str) -> Iterator[tuple[str, Prepared]]:
    """Yield what the scheduler gave to the claim of the devices of one driver."""
    allocation = _record(_record(_record(claim, "status"), "allocation"), "devices")
    for result in _list(allocation, "results"):
        if _text(result, "driver") != driver:
            continue
        consumed = _record(result, "consumedCapacity")
        cores = quantity(_text(consumed, "cores"))
        yield (
            _text(result, "device"),
            Prepared(
                share_id=_text(result, "shareID"),
                memory=quantity(_text(consumed, "memory")) or None,
                compute=cores / 100 if cores else None,
                admin=result.get("adminAccess") is True,
            ),
        )


def _uuids(claim: Any) -> Iterator[tuple[str, str, str]]:
    """Yield device, share and uuid of what is prepared, in the words of any release."""
    for group in _list(claim, "preparedDevices"):
        for kinds in _list(group, "devices"):
            for kind in kinds:
                entry = _record(kinds, kind)
                device = _record(entry, "device")
                uuid = _text(_record(entry, "concrete"), "migUUID") or _text(_record(entry, "info"), "uuid")
                if device and UUID.fullmatch(uuid):
                    yield _text(device, "DeviceName"), _text(device, "ShareID"), uuid


def _record(parent: Any, name: str) -> dict[str, Any]:
    """Return a part that is a record; null and nothing are an empty one."""
    part = _part(parent, name, {})
    if not isinstance(part, dict):
        raise _ShapeError(f"{name} is no record")
    return part


def _list(parent: Any, name: str) -> list[dict[str, Any]]:
    items = _part(parent, name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _ShapeError(f"{name} is no list of records")
    return items


def _text(parent: Any, name: str) -> str:
    text = _part(parent, name, "")
    if not isinstance(text, str):
        raise _ShapeError(f"{name} is no text")
    return text


def _part(parent: Any, name: str, nothing: Any) -> Any:
    if not isinstance(parent, dict):
        raise _ShapeError(f"what should have {name} is no record")
    value = parent.get(name)
    return nothing if value is None else value
