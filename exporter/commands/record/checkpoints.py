"""The checkpoints of DRA drivers in a recording: each in its driver's own format, with masked names."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from exporter.commands.record.mask import Mask
from exporter.model import SystemFiles
from exporter.sharing import SYSTEMS
from exporter.sharing.dra.amd import AmdDra
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared
from exporter.sharing.dra.claims import ClaimSystem
from exporter.sharing.dra.intel import IntelDra

CLAIM_SYSTEMS = tuple(system for system in SYSTEMS if issubclass(system, ClaimSystem))
# Masked shares by masked uid of the claim and name of the device.
Claims = Mapping[str, Mapping[str, list[Prepared]]]


def checkpoints(files: Mapping[str, SystemFiles], mask: Mask) -> Iterator[tuple[str, str]]:
    """Yield path and text of each checkpoint that has claims."""
    for system in CLAIM_SYSTEMS:
        checkpoint = files.get(system.name)
        if isinstance(checkpoint, Checkpoint) and checkpoint.prepared:
            document = _WRITERS.get(system.name, _of_nvidia)(_masked(checkpoint, mask), system.driver)
            yield f"var/lib/kubelet/plugins/{system.driver}/{system.form.file}", json.dumps(document)


def _masked(checkpoint: Checkpoint, mask: Mask) -> Claims:
    claims: dict[str, dict[str, list[Prepared]]] = defaultdict(dict)
    for (uid, device), shares in checkpoint.prepared.items():
        claims[mask.uid(uid)][mask.text(device)] = [_share(share, mask) for share in shares]
    return claims


def _share(share: Prepared, mask: Mask) -> Prepared:
    request = masked_request(share.request, mask)
    return replace(share, share_id=mask.uid(share.share_id), uuid=mask.uuid(share.uuid), request=request)


def masked_request(request: str, mask: Mask) -> str:
    """Return a masked request; one with alternatives has two parts: ``gpu/large``."""
    return "/".join(mask.name("request", part) for part in request.split("/") if part)


def _of_nvidia(claims: Claims, driver: str) -> Any:
    return {"v2": {"preparedClaims": {uid: _nvidia_claim(of, driver) for uid, of in claims.items()}}}


def _nvidia_claim(devices: Mapping[str, list[Prepared]], driver: str) -> Any:
    shares = [(name, share) for name, of_device in devices.items() for share in of_device]
    results = [{"driver": driver, "device": name, **dict(_result(share))} for name, share in shares]
    prepared = [
        {"gpu": {"device": {"DeviceName": name, "ShareID": share.share_id}, "info": {"uuid": share.uuid}}}
        for name, share in shares
        if share.uuid
    ]
    return {
        "status": {"allocation": {"devices": {"results": results}}},
        "preparedDevices": [{"devices": prepared}],
    }


def _result(share: Prepared) -> Iterator[tuple[str, object]]:
    if share.request:
        yield "request", share.request
    if share.share_id:
        yield "shareID", share.share_id
    if share.admin:
        yield "adminAccess", True
    cores = None if share.compute is None else round(share.compute * 100)
    consumed = {"memory": share.memory, "cores": cores}
    yield "consumedCapacity", {name: str(value) for name, value in consumed.items() if value is not None}


def _of_amd(claims: Claims, _driver: str) -> Any:
    prepared = {
        uid: [_amd_device(name, share) for name, shares in devices.items() for share in shares]
        for uid, devices in claims.items()
    }
    return {"v1": {"preparedClaims": prepared}}


def _amd_device(name: str, share: Prepared) -> Any:
    nodes = [] if share.render_minor is None else [{"path": f"/dev/dri/renderD{share.render_minor}"}]
    return {
        "request_names": _requests(share),
        "device_name": name,
        "ContainerEdits": {"deviceNodes": nodes},
        "shareKey": f"/{share.share_id}",
    }


def _of_intel(claims: Claims, _driver: str) -> Any:
    prepared = {
        uid: {
            "PreparedDevices": [
                {
                    "AdminAccess": share.admin,
                    "KubeletpluginDevice": {"Requests": _requests(share), "DeviceName": name},
                }
                for name, shares in devices.items()
                for share in shares
            ]
        }
        for uid, devices in claims.items()
    }
    return {"PreparedClaims": prepared}


def _requests(share: Prepared) -> list[str]:
    return [share.request] if share.request else []


_WRITERS: Mapping[str, Callable[[Claims, str], Any]] = {AmdDra.name: _of_amd, IntelDra.name: _of_intel}
