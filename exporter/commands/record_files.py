"""What a recording has of the files of sharing systems: what they say, under other names."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from exporter.commands.record_mask import Mask
from exporter.demo.kept import KEEPERS
from exporter.model import ContainerFile, SystemFiles
from exporter.sharing import SYSTEMS
from exporter.sharing.cgpu import Cgpu
from exporter.sharing.claims import ClaimSystem
from exporter.sharing.files.dra_checkpoint import Checkpoint, Prepared
from exporter.sharing.nvidia import Nvidia

Files = Mapping[str, SystemFiles]
CLAIM_SYSTEMS = tuple(system for system in SYSTEMS if issubclass(system, ClaimSystem))


def kept(files: Files, mask: Mask) -> dict[str, tuple[ContainerFile, ...]]:
    """Return what the files of containers say, by system."""
    return {
        system: tuple(_container(file, mask) for file in files[system].containers)
        for system in KEEPERS
        if system in files and files[system].containers
    }


def other_files(files: Files, mask: Mask) -> dict[str, str]:
    """Return what else the systems' files say, as texts by path."""
    nothing = SystemFiles()
    found = {
        f"run/nvidia/mps/{mask.text(resource)}/.started": ""
        for resource in files.get(Nvidia.name, nothing).names
    }
    found |= {f"proc/cgpu_km/{name}": text for name, text in files.get(Cgpu.name, nothing).names.items()}
    for system in CLAIM_SYSTEMS:
        checkpoint = files.get(system.name)
        if isinstance(checkpoint, Checkpoint) and checkpoint.prepared:
            path = f"var/lib/kubelet/plugins/{system.driver}/checkpoint.json"
            found[path] = json.dumps(_checkpoint(checkpoint, system.driver, mask))
    return found


def _container(file: ContainerFile, mask: Mask) -> ContainerFile:
    return replace(
        file,
        pod_uid=mask.uid(file.pod_uid),
        container=mask.container(file.container),
        container_id=mask.container_id(file.container_id),
        claim_uid=mask.uid(file.claim_uid),
        devices=tuple(replace(use, device=mask.text(use.device)) for use in file.devices),
    )


def _checkpoint(checkpoint: Checkpoint, driver: str, mask: Mask) -> dict[str, Any]:
    claims: dict[str, dict[str, Any]] = {}
    for (uid, device), shares in checkpoint.prepared.items():
        claim = claims.setdefault(
            mask.uid(uid),
            {"status": {"allocation": {"devices": {"results": []}}}, "preparedDevices": [{"devices": []}]},
        )
        for share in shares:
            name, share_id = mask.text(device), mask.uid(share.share_id)
            result = {"driver": driver, "device": name, **dict(_result(share, share_id))}
            claim["status"]["allocation"]["devices"]["results"].append(result)
            if share.uuid:
                of = {"DeviceName": name, "ShareID": share_id}
                made = {"gpu": {"device": of, "info": {"uuid": mask.uuid(share.uuid)}}}
                claim["preparedDevices"][0]["devices"].append(made)
    return {"v2": {"preparedClaims": claims}}


def _result(share: Prepared, share_id: str) -> Iterator[tuple[str, object]]:
    if share_id:
        yield "shareID", share_id
    if share.admin:
        yield "adminAccess", True
    cores = None if share.compute is None else round(share.compute * 100)
    consumed = {"memory": share.memory, "cores": cores}
    yield "consumedCapacity", {name: str(each) for name, each in consumed.items() if each is not None}
