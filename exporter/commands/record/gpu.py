"""One GPU of a recording: a reading as the description of a board."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate

from exporter.commands.record.answers import SYMBOLS, answers_of, answers_of_mig
from exporter.commands.record.mask import Mask
from exporter.demo.scenario import gpus as schema
from exporter.demo.scenario import pods
from exporter.demo.scenario.pods import OFF, Curve
from exporter.model import DeviceProcess, GpuReading, License, Memory, MigReading, Nvlink, PeerLink, Topology
from exporter.model.hardware import ProcessKind
from exporter.model.mig_profiles import MigProfiles
from exporter.nvml.facts import ARCHITECTURES

Peers = dict[str, dict[str, PeerLink]]
# The name of a process could reveal its owner's work.
COMMAND = "process"
KINDS: tuple[ProcessKind, ...] = ("mps", "compute", "graphics")
BOARD_INFO = ("part_number", "inforom", "gsp_firmware", "compute_capability")
ARCHITECTURE_NUMBERS = {name: number for number, name in ARCHITECTURES.items()}


def peers_of(gpus: Collection[GpuReading]) -> Peers:
    """Return the links of each GPU to the others by uuid, as read from either of the two."""
    peers: Peers = {gpu.identity.uuid: {} for gpu in gpus}
    for gpu in gpus:
        for other, link in (gpu.topology or Topology()).peers.items():
            if other in peers:
                peers[gpu.identity.uuid][other] = link
                peers[other].setdefault(gpu.identity.uuid, link)
    return peers


def record_gpu(gpu: GpuReading, mask: Mask, peers: Peers) -> schema.Gpu:
    """Return a board whose values stay as they were read; ``peers`` are the links between all boards."""
    identity, clocks = gpu.identity, gpu.clocks_megahertz
    memory = gpu.memory or Memory(total=0, used=0, free=0)
    sm = clocks.get("sm", 0)
    missing = {SYMBOLS.get(name, name) for name in gpu.unsupported}
    if not any(peer.pcie for peer in peers[gpu.identity.uuid].values()):
        missing.add("nvmlDeviceGetTopologyCommonAncestor")
    if gpu.fabric is not None:
        gpu = replace(gpu, fabric=replace(gpu.fabric, cluster=mask.uuid(gpu.fabric.cluster)))
    answers, unsupported = answers_of(gpu, missing)
    return schema.Gpu(
        uuid=mask.uuid(identity.uuid),
        minor=identity.minor,
        model=identity.model,
        pci_bus_id=identity.pci_bus_id,
        serial=mask.serial(identity.serial),
        vbios=identity.vbios,
        board_info={name: fact for name in BOARD_INFO if (fact := getattr(identity, name)) is not None},
        architecture=ARCHITECTURE_NUMBERS.get(identity.architecture or "", 0),
        memory_total=memory.total,
        memory_reserved=memory.reserved or 0,
        overhead=_overhead(gpu, memory),
        power_idle_mw=gpu.power_milliwatts or 0,
        power_max_mw=gpu.power_milliwatts or 0,
        temperature_base=gpu.temperature_celsius or 0,
        memory_temperature=gpu.memory_temperature_celsius is not None,
        clocks=schema.Clocks(
            sm_idle=sm, sm_max=sm, memory=clocks.get("memory", 0), video_max=clocks.get("video", 0)
        ),
        fan=gpu.fan_percent,
        compute_mode=gpu.compute_mode or "default",
        pcie_replays=gpu.pcie_replays or 0,
        virtualization=gpu.virtualization or "none",
        license=_license(gpu.license),
        gpm=False if gpu.profiling is None and "profiling" in gpu.withheld else None,
        links=_links(gpu, mask, peers),
        mig=_mig(gpu, mask),
        answers=answers,
        unsupported=unsupported,
    )


def _license(own: License | None) -> schema.GuestLicense | None:
    if own is None:
        return None
    expires = "" if own.expires is None else f"{datetime.fromtimestamp(own.expires, UTC):%FT%T}"
    return schema.GuestLicense(product=own.product, licensed=own.licensed, expires=expires)


def _links(gpu: GpuReading, mask: Mask, peers: Peers) -> schema.Links:
    """Return the links to other GPUs.

    A direct NVLink leads to one GPU: if the peers have more links than this GPU, they go through a switch.
    """
    topology, nvlink = gpu.topology or Topology(), gpu.nvlink or Nvlink()
    links = nvlink.links or 0
    active = links if nvlink.active is None else nvlink.active
    own = peers[gpu.identity.uuid]
    direct = {mask.uuid(uuid): peer.nvlinks for uuid, peer in own.items() if peer.nvlinks}
    switch = sum(direct.values()) > active
    return schema.Links(
        nvlinks=links,
        down=links - active,
        switch=switch,
        to={} if switch else direct,
        numa_node=topology.numa_node,
        cpus=topology.cpus,
        relations={mask.uuid(uuid): peer.pcie for uuid, peer in own.items() if peer.pcie is not None},
    )


def processes_of(gpu: GpuReading, mask: Mask) -> Iterator[tuple[int, pods.Process]]:
    """Yield the pid and the description of every process on a GPU and on its MIG devices."""
    for process in gpu.processes or ():
        percent = round((gpu.process_utilization or {}).get(process.pid) or 0)
        yield process.pid, _process(process, mask.uuid(gpu.identity.uuid), percent)
    for mig in gpu.mig or ():
        for process in mig.processes or ():
            yield process.pid, _process(process, mask.uuid(mig.uuid), 0)


def _process(process: DeviceProcess, device: str, percent: int) -> pods.Process:
    return pods.Process(
        pid=process.pid,
        command=COMMAND,
        device=device,
        memory=process.memory,
        kind=next(kind for kind in KINDS if kind in process.kinds),
        load=Curve(high=percent) if percent else OFF,
    )


def _overhead(gpu: GpuReading, memory: Memory) -> int:
    """Return the memory in use that neither processes nor MIG devices account for, in bytes."""
    instances = {mig.gi: mig.memory.used for mig in gpu.mig or () if mig.memory is not None}
    return max(memory.used - _sum(gpu.processes) - sum(instances.values()), 0)


def _sum(processes: tuple[DeviceProcess, ...] | None) -> int:
    return sum(process.memory or 0 for process in processes or ())


def _mig(gpu: GpuReading, mask: Mask) -> schema.Mig | None:
    if gpu.mig_enabled is None or "nvmlDeviceGetMigMode" in gpu.unsupported:
        return None
    starts = _starts(gpu.mig or ())
    return schema.Mig(
        enabled=bool(gpu.mig_enabled),
        max_slices=gpu.mig_slices or 7,
        instances=tuple(_instance(mig, mask, starts[mig.gi]) for mig in gpu.mig or ()),
        profiles=_profiles(gpu.mig_profiles),
    )


def _profiles(read: MigProfiles | None) -> tuple[schema.MigProfileSize, ...]:
    if read is None or read.source != "driver":
        return ()
    return tuple(map(schema.MigProfileSize.of, read.profiles))


def _starts(migs: tuple[MigReading, ...]) -> dict[int, int]:
    """Return the start of each GPU instance: as read, or next to each other if only root may read it.

    In the latter case instances filled by their compute instances come first: the driver finds a compute
    instance by its place, and there are as many places as compute slices, often one fewer than memory slices.
    """
    starts = {mig.gi: mig.gi_start for mig in migs if mig.gi_start is not None and mig.gi_size is not None}
    if all(mig.gi in starts for mig in migs):
        return starts
    sizes = {mig.gi: mig.memory_slices or 1 for mig in migs}
    filled = Counter(mig.gi for mig in migs)
    order = sorted(sizes, key=lambda gi: (sizes[gi] - filled[gi], gi))
    return dict(zip(order, accumulate((sizes[gi] for gi in order), initial=0), strict=False))


def _instance(mig: MigReading, mask: Mask, start: int) -> schema.MigInstance:
    memory = mig.memory or Memory(total=0, used=0, free=0)
    answers, unsupported = answers_of_mig(mig)
    return schema.MigInstance(
        uuid=mask.uuid(mig.uuid),
        gi=mig.gi,
        ci=mig.ci,
        profile=mig.profile or "",
        memory_bytes=memory.total,
        reserved=memory.reserved or 0,
        overhead=0 if mig.memory_shared else max(memory.used - _sum(mig.processes), 0),
        compute_slices=mig.compute_slices or 0,
        gi_slices=mig.instance_slices or 0,
        multiprocessors=mig.multiprocessors or 0,
        start=start,
        size=mig.gi_size or mig.memory_slices or 1,
        gi_profile=mig.gi_profile,
        engines=mig.engines,
        answers=answers,
        unsupported=(*unsupported, *(("nvmlGpuInstanceGetInfo",) if mig.gi_profile is None else ())),
    )
