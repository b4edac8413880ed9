"""Parser of the checkpoints of DRA drivers: NVIDIA's and its forks, which are HAMi's and vgpu-manager's.

The file is internal to the driver. It has the data in two versions, of which v2 counts. The checksum depends
on the driver's release and is not verified. Drivers with a checkpoint of their own have a ``Form`` of it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from exporter.model import Problem, SystemFiles, only
from exporter.model.quantity import whole_quantity
from exporter.sharing.base import Roots
from exporter.sharing.base.reading import UnusableError, content, problem

# A claim takes a few kilobytes, and a node has at most a few hundred claims.
MOST_BYTES = 4 << 20
UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
# What a device of a claim has besides its kind, in vgpu-manager's fork.
TEXTS = frozenset({"request", "cdiDeviceID"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One device of a claim, or a share of it."""

    share_id: str = ""
    uuid: str = ""  # "" until the device is prepared, or if the driver does not note it
    render_minor: int | None = None  # of the container's render node; None if the driver does not note it
    memory: int | None = None  # bytes of a shared device; None if not stated
    compute: float | None = None  # share of a shared GPU; None if not stated
    request: str = ""  # name of the request in the claim; "" if not stated
    admin: bool = False  # admin access: monitors the device and does not hold it


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(SystemFiles):
    """The content of a checkpoint."""

    # By (claim uid, the driver's device name).
    prepared: Mapping[tuple[str, str], tuple[Prepared, ...]] = field(default_factory=dict)
    missing: bool = False  # there is no file (any more); ``prepared`` is from an earlier read

    def held(self) -> Mapping[tuple[str, str], tuple[Prepared, ...]]:
        """Return the devices that claims hold now, without admin access."""
        if self.missing:
            return {}
        held = {
            key: tuple(share for share in shares if not share.admin) for key, shares in self.prepared.items()
        }
        return {key: shares for key, shares in held.items() if shares}

    def find(self, claim_uid: str, device: str, share_id: str) -> tuple[Prepared, ...]:
        """Return a claim's shares of a device: the one with ``share_id``, or all if it is "".

        Older kubelets report no share id, nor do others if the driver returns none, as NVIDIA's.
        """
        shares = self.prepared.get((claim_uid, device), ())
        exact = tuple(share for share in shares if share.share_id == share_id)
        return exact or (() if share_id else shares)


def with_known(now: SystemFiles, previous: SystemFiles | None) -> SystemFiles:
    """Return ``now``, with the devices of ``previous`` if the checkpoint cannot be read now.

    The devices of a claim do not change while it exists.
    """
    if not isinstance(now, Checkpoint) or not isinstance(previous, Checkpoint):
        return now
    if now.prepared or not (now.missing or now.problems):
        return now
    return replace(now, prepared=previous.prepared)


class ShapeError(ValueError):
    """A part of a checkpoint with the wrong type."""


def _claims(document: Any) -> dict[str, Any]:
    return record(record(document, "v2") or record(document, "v1"), "preparedClaims")


def _devices(claim: Any, driver: str) -> dict[str, tuple[Prepared, ...]]:
    """Return the devices of one claim, with the uuids of those that are prepared."""
    devices: dict[str, dict[str, Prepared]] = defaultdict(dict)
    for device, share in _results(claim, driver):
        devices[device][share.share_id] = share
    for device, share_id, uuid in _uuids(claim):
        shares = devices[device]
        # NVIDIA's driver has no share id of a prepared device: its uuid is that of all shares.
        for share_key in list(shares) if shares and not share_id else [share_id]:
            shares[share_key] = replace(shares.get(share_key, Prepared(share_id=share_key)), uuid=uuid)
    return {device: tuple(shares.values()) for device, shares in devices.items()}


def _results(claim: Any, driver: str) -> Iterator[tuple[str, Prepared]]:
    """Yield the devices of one driver that the scheduler allocated to a claim."""
    allocation = record(record(record(claim, "status"), "allocation"), "devices")
    for result in records(allocation, "results"):
        if text(result, "driver") != driver:
            continue
        consumed = record(result, "consumedCapacity")
        cores = whole_quantity(text(consumed, "cores"))
        yield (
            text(result, "device"),
            Prepared(
                share_id=text(result, "shareID"),
                request=text(result, "request"),
                memory=whole_quantity(text(consumed, "memory")) or None,
                compute=cores / 100 if cores else None,
                admin=result.get("adminAccess") is True,
            ),
        )


def _uuids(claim: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (device, share id, uuid) of prepared devices, in the format of any release."""
    for group in records(claim, "preparedDevices"):
        for kinds in records(group, "devices"):
            for kind in (name for name in kinds if name not in TEXTS):
                entry = record(kinds, kind)
                device = record(entry, "device")
                uuid = text(record(entry, "concrete"), "migUUID") or text(record(entry, "info"), "uuid")
                if device and UUID.fullmatch(uuid):
                    yield text(device, "DeviceName"), text(device, "ShareID"), uuid


def record(parent: Any, name: str) -> dict[str, Any]:
    """Return an object member, {} if it is null or missing; raises ShapeError."""
    part = _part(parent, name, {})
    if not isinstance(part, dict):
        raise ShapeError(f"{name} is not an object")
    return part


def records(parent: Any, name: str) -> list[dict[str, Any]]:
    """Return a list of objects, [] if it is null or missing; raises ShapeError."""
    items = _part(parent, name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ShapeError(f"{name} is not a list of objects")
    return items


def text(parent: Any, name: str) -> str:
    """Return a string, "" if it is null or missing; raises ShapeError."""
    value = _part(parent, name, "")
    if not isinstance(value, str):
        raise ShapeError(f"{name} is not a string")
    return value


def request_of(parent: Any, name: str) -> str:
    """Return the only request in a list, "" if there are none or several; raises ShapeError."""
    names = _part(parent, name, [])
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise ShapeError(f"{name} is not a list of strings")
    return only(names) or ""


def _part(parent: Any, name: str, nothing: Any) -> Any:
    if not isinstance(parent, dict):
        raise ShapeError(f"the parent of {name} is not an object")
    value = parent.get(name)
    return nothing if value is None else value


class Form(NamedTuple):
    """The form in which a driver writes its checkpoint. Both functions raise ShapeError."""

    file: str
    claims: Callable[[Any], Mapping[str, Any]]  # the claims in a JSON document, by uid
    devices: Callable[
        [Any, str], Mapping[str, tuple[Prepared, ...]]
    ]  # a claim's devices of a driver, by name


NVIDIA = Form("checkpoint.json", _claims, _devices)


def read_checkpoint(roots: Roots, driver: str, form: Form = NVIDIA) -> Checkpoint:
    """Return the checkpoint of a driver; one that is missing or unusable is empty; blocks, never raises."""
    path = roots.kubelet / "plugins" / driver / form.file
    try:
        return decode(content(path, MOST_BYTES), driver, path, form)
    except (FileNotFoundError, NotADirectoryError):
        return Checkpoint(missing=True)
    except (OSError, UnusableError) as error:
        return Checkpoint(problems=(problem(path, error),))


def decode(encoded: bytes, driver: str, path: Path, form: Form = NVIDIA) -> Checkpoint:
    """Return the content of a checkpoint; raises UnusableError. A malformed claim is a problem."""
    try:
        document = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"is not JSON: {error}") from error
    try:
        claims = form.claims(document)
    except ShapeError as error:
        raise UnusableError(f"is not a checkpoint: {error}") from error
    prepared: dict[tuple[str, str], tuple[Prepared, ...]] = {}
    problems: list[Problem] = []
    for uid, claim in claims.items():
        try:
            prepared |= {(uid, device): shares for device, shares in form.devices(claim, driver).items()}
        except ShapeError as error:
            problems.append(problem(f"{path}: {uid[:64]}", error))
    return Checkpoint(prepared=prepared, problems=tuple(problems))
