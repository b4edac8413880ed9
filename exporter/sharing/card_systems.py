"""Systems that hand out percents and memory of cards: mGPU, qGPU, Elastic GPU, Volcano's first, Baidu's cGPU.

The kubelet's ids are amounts in all of them. What has the card of a container differs: an annotation of the
pod, or nothing that is documented, so that cards are known only on nodes with one card.
"""

import re
from collections.abc import Iterable, Mapping

from exporter.model import ContainerRef
from exporter.sharing.base import GIBIBYTE, MEBIBYTE, Grant, Granted, System, only_size, whole_keys
from exporter.sharing.base.cards import FULL, Cards, CardSystem, total_memory
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

# How compute is divided: by the kernel module, or not at all. Memory is limited by the module in any case.
SHARES, NO_SHARES = "hard", "soft"
MGPU = "vke.volcengine.com/"
MGPU_CARDS, MGPU_ASSUMED = f"{MGPU}gpu-index-container-", f"{MGPU}assumed"
MGPU_POLICY = f"{MGPU}mgpu-compute-policy"
MGPU_POLICIES = {"fixed-share": SHARES, "guaranteed-burst-share": SHARES, "native-burst-share": NO_SHARES}
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Mgpu(CardSystem):
    """Volcengine's mGPU: percents and MiB of cards, enforced by a kernel module.

    The scheduler writes a container's cards, by index or UUID, into the annotation
    ``vke.volcengine.com/gpu-index-container-<name or number>``. The container's share is spread evenly over
    these cards. ``mgpu-compute-policy``, of the pod or the node, lets containers exceed their share, and does
    not change it; with ``native-burst-share`` nothing guarantees their share of the compute.
    """

    name = "mgpu"
    isolation = ""
    notes = (
        re.compile(f"{re.escape(MGPU_ASSUMED)}|{re.escape(MGPU_CARDS)}(?P<name>.+)"),
        whole_keys(MGPU_POLICY),
    )
    cores = (f"{MGPU}mgpu-core",)
    memories = (f"{MGPU}mgpu-memory",)
    spreads = True
    confirmed = MGPU_ASSUMED

    def keys(self, holder: ContainerRef) -> tuple[str, ...]:
        return f"{MGPU_CARDS}{holder.container}", f"{MGPU_CARDS}{self.number_of(holder)}"

    def isolation_of(self, holder: ContainerRef, core: int) -> str:
        """Return the isolation by the policy of the pod, else of the node; whole cards are not shared."""
        if core >= FULL:
            return SHARES
        policy = self.view.annotations(holder).get(MGPU_POLICY) or self.view.node_labels.get(MGPU_POLICY, "")
        return MGPU_POLICIES.get(policy, "")

    def is_card(self, item: str) -> bool:
        """Return True if ``item`` is the index or UUID of a card."""
        return super().is_card(item) or _UUID.fullmatch(item) is not None

    def card(self, item: str) -> Device | None:
        return self.view.inventory.by_uuid(item) if item.startswith("GPU-") else super().card(item)


ELASTIC_CARDS, ELASTIC_ASSUMED = "elasticgpu.io/container-", "elasticgpu.io/assumed"
_ELASTIC_ID = re.compile(r"([0-9]{1,4})-[0-9]{2,7}")


class ElasticGpu(CardSystem):
    """Elastic GPU: holders by annotation. From 100 percent on, cards are whole."""

    name = "elastic-gpu"
    notes = (re.compile(f"{re.escape(ELASTIC_ASSUMED)}|{re.escape(ELASTIC_CARDS)}(?P<name>.+)"),)
    cores = ("elasticgpu.io/gpu-core", "elasticgpu.com/gpu-core")
    memories = ("elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory")
    confirmed = ELASTIC_ASSUMED

    def keys(self, holder: ContainerRef) -> tuple[str, ...]:
        return (f"{ELASTIC_CARDS}{holder.container}",)

    def offered_on(self, _resource: str, device_id: str) -> Device | None:
        """Return the card by the index in an id."""
        match = _ELASTIC_ID.fullmatch(device_id)
        return self.card(match[1]) if match else None


QGPU = "tke.cloud.tencent.com/"
QGPU_POLICY = f"{QGPU}qgpu-schedule-policy"
QGPU_POLICIES = {
    **dict.fromkeys(("fixed-share", "fs", "burst-share", "bs"), SHARES),
    **dict.fromkeys(("best-effort", "be"), NO_SHARES),
}


class Qgpu(CardSystem):
    """Tencent's qGPU, enforced by a kernel module: holders by Elastic GPU's annotation, or of the only card.

    More than 100 percent is spread evenly over as few cards as possible, each part rounded down. Pods with
    ``qgpu-core-greedy`` use idle compute and have no entitlement to compute. qGPU does not document where it
    writes the card of a container; annotations of Elastic GPU, whose scheduler is public, count if a pod has
    them. A label of the node has the policy; with ``best-effort`` nothing guarantees a share of the compute.
    """

    name = "qgpu"
    isolation = ""
    notes = (whole_keys(QGPU_POLICY),)
    cores = (f"{QGPU}qgpu-core",)
    memories = (f"{QGPU}qgpu-memory",)
    others = (f"{QGPU}qgpu-core-greedy",)
    spreads = True
    confirmed = ELASTIC_ASSUMED
    unit = GIBIBYTE

    def keys(self, holder: ContainerRef) -> tuple[str, ...]:
        return (f"{ELASTIC_CARDS}{holder.container}",)

    def isolation_of(self, _holder: ContainerRef, core: int) -> str:
        """Return the isolation by the policy of the node; whole cards are not shared."""
        return SHARES if core >= FULL else QGPU_POLICIES.get(self.view.node_labels.get(QGPU_POLICY, ""), "")

    def unannotated(self, _holder: ContainerRef) -> Cards:
        """Return the only card, also with pod details."""
        return self.only_card()


VOLCANO_MEMORY, VOLCANO_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
VOLCANO_CARDS, VOLCANO_ASSIGNED = "volcano.sh/gpu-index", "volcano.sh/gpu-assigned"
_VOLCANO_ID = re.compile(r"([0-9]{1,4})-[0-9]{1,7}")


class VolcanoGpushare(CardSystem):
    """Volcano's first GPU sharing: shares of a card's memory, or whole cards, without enforcement.

    The scheduler writes the NVML indexes of a pod's cards into ``volcano.sh/gpu-index``. The plugin uses
    those, whatever ids the kubelet chose: UUIDs of ``volcano.sh/gpu-number`` only count. All containers of a
    pod have the same card, or divide its cards in a way that no annotation has.

    One id of ``volcano.sh/gpu-memory`` is a number of MiB by the plugin's configuration. Each card has as
    many ids as fit into the first card: the size of an id is known if only one size gives this number.
    """

    name = "volcano-gpushare"
    notes = (whole_keys(VOLCANO_CARDS, VOLCANO_ASSIGNED),)
    cores = (VOLCANO_NUMBER,)
    percent = FULL
    memories = (VOLCANO_MEMORY,)
    confirmed = VOLCANO_ASSIGNED

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.unit = self._computed_unit()

    def keys(self, _holder: ContainerRef) -> tuple[str, ...]:
        return (VOLCANO_CARDS,)

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Return the card by its UUID, or by the index in an id."""
        if resource == VOLCANO_NUMBER:
            return self.view.inventory.by_uuid(device_id)
        match = _VOLCANO_ID.fullmatch(device_id)
        return self.card(match[1]) if match else None

    def _computed_unit(self) -> int | None:
        first = sum(device_id.startswith("0-") for device_id in self.view.offered.get(VOLCANO_MEMORY, ()))
        total = total_memory(self.card("0"))
        if not first or total is None:
            return None
        unit = only_size(total // MEBIBYTE, first)
        return None if unit is None else unit * MEBIBYTE


BAIDU = re.compile(r"(baidu\.com/[a-z0-9_.-]+_cgpu)(?:_(core|memory|memory_percent))?")
BAIDU_PARTS = ("core", "memory", "memory_percent")


class Baidu(System):
    """Baidu's cGPU: ``baidu.com/t4_16g_cgpu`` counts cards, further resources have the container's share.

    ``_core`` is in percent of a card, ``_memory`` in GiB and ``_memory_percent`` in percent, each of the
    container's total. A container without them has whole cards, one with memory only has no compute limit.
    The card of an id is not documented: holders are shown on nodes with one GPU only.
    """

    name = "baidu-cgpu"
    isolation = ""
    notes = (BAIDU,)
    own = BAIDU

    def grants(self) -> Granted:
        """Return the grants of the node's only GPU; with several GPUs, a holder's GPU is unknown."""
        inventory, granted = self.view.inventory, Granted()
        device = next(inventory.whole(), None) if len(inventory.devices) == 1 else None
        if device is None:
            return granted
        for holder, held in self.view.held.items():
            for cards, mine in self._mine(held).items():
                parts = {resource: held[resource] for resource in mine}
                granted.grants.append(self._grant(holder, cards, parts, device))
                granted.settle(holder, mine)
        return granted

    def _mine(self, held: Iterable[str]) -> dict[str, list[str]]:
        """Return the resources of each kind of card, the one that counts cards first."""
        mine: dict[str, list[str]] = {}
        for resource in sorted(held):
            match = BAIDU.fullmatch(resource)
            if match is not None:
                mine.setdefault(match[1], []).append(resource)
        return mine

    def _grant(
        self, holder: ContainerRef, cards: str, held: Mapping[str, frozenset[str]], device: Device
    ) -> Grant:
        """Return the grant of one kind of card, with amounts by the container's ids, else by its limits."""
        resource, total = next(iter(held)), device.memory
        details = self.view.details(holder)
        specs = details.containers if details is not None else ()
        limits = next((spec.limits for spec in specs if spec.name == holder.container), None)
        asked = {
            part: len(held.get(f"{cards}_{part}", ())) or (limits or {}).get(f"{cards}_{part}", 0)
            for part in BAIDU_PARTS
        }
        memory, compute = asked["memory"] * GIBIBYTE or None, asked["core"] / 100 or None
        if memory is None and total is not None:
            memory = total * asked["memory_percent"] // 100 or None
        # Without limits it is unknown whether a container without amounts has whole cards.
        whole = limits is not None and not any(asked.values())
        return Grant(
            holder=holder,
            resource=resource,
            device=device,
            slices=len(held[resource]),
            memory_entitled=total if whole else memory,
            compute_entitled=1.0 if whole else compute,
            exclusive=whole,
        )
