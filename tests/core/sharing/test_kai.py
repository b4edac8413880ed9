"""KAI-Scheduler: who has which fraction of the GPUs that reservation pods hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import DeviceKey, DeviceUse, Holding, Meter, SliceCount
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from exporter.sharing.gpu_fractions import memory as read_memory
from exporter.sharing.kai import Kai, KaiLimited
from tests.core.attribution.build import GIB, UUID, attribute, gpu, held, memory, process, whole, workloads
from tests.core.attribution.build import row as row_of
from tests.core.sharing.build import (
    OTHER_UUID,
    allocations,
    by,
    container,
    numbered,
    only,
    pod,
    pods,
    resolve,
    rows,
    where,
)
from tests.core.sharing.cases import cached
from tests.core.sharing.reservations import GROUP, OTHER_GROUP, fraction, reservation, reserved

MIB = 1 << 20
KEY, OTHER = DeviceKey(UUID), DeviceKey(OTHER_UUID)
OTHER_NAME = "gpu-reservation-node-1-m4vq9"
LONG = "0." + "1" * 400
REQUEST, LIMIT, DEVICES, PORTION = (
    f"nvidia.com/container.main.{name}"
    for name in ("gpu-memory.request", "gpu-memory.limit", "gpus.devices", "gpu-compute.portion")
)
# kai-scheduler/KAI-Scheduler pkg/binder/plugins/nvfractions/gpu_fractions.go
CDI = f"k8s.device-plugin.nvidia.com/gpu={UUID}"


def shared(*found, gpus=None, allocated=None, offered=None, **facts):
    """Return the holdings of a node with a GPU of 16 GiB, which is reserved, and these pods."""
    everything = pods(reservation(), *found)
    ids = reserved() if allocated is None else allocated
    return resolve(gpus or gpu(), ids, whole() if offered is None else offered, pods=everything, **facts)


def test_a_fraction_is_a_part_of_memory_and_compute():
    holdings = shared(fraction("a"))
    assert only(holdings) == Holding(
        holder=container("a"),
        device=KEY,
        resource="nvidia.com/gpu",
        slices=1,
        memory_entitled=8 * GIB,
        compute_entitled=0.5,
        sharing="kai",
        isolation="none",
    )
    assert holdings.unresolved == {}
    assert holdings.blind == {}


def test_the_number_of_fractions_of_a_gpu_is_unknown():
    holdings = shared(fraction("a"), fraction("b", {"gpu-fraction": "0.25"}))
    assert holdings.devices[KEY].slices == (SliceCount("nvidia.com/gpu", None, 2),)
    assert not holdings.devices[KEY].exclusive


def test_more_than_the_gpu_has_is_shown():
    holdings = shared(fraction("a", {"gpu-fraction": "0.8"}), fraction("b", {"gpu-fraction": "0.8"}))
    assert sum(holding.compute_entitled for holding in holdings.holdings) == pytest.approx(1.6)


# Annotations, MiB of the GPU; memory and compute of the holder.
REQUESTS = [
    (
        {"gpu-fraction": "0.4"},
        10240,
        (4096 * MIB, 0.4),
    ),  # podgroupcontroller/controllers/status_updater_test.go
    ({"gpu-fraction": ".5"}, 16384, (8 * GIB, 0.5)),
    ({"gpu-fraction": "5e-1"}, 16384, (8 * GIB, 0.5)),
    ({"gpu-fraction": "1"}, 16384, (16 * GIB, 1.0)),
    # podgroupcontroller/controllers/resources/fraction_test.go
    ({"gpu-memory": "2000"}, 4000, (2000 * MIB, 0.5)),
    # The scheduler reads the fraction last.
    ({"gpu-fraction": "0.25", "gpu-memory": "2000"}, 16384, (4 * GIB, 0.25)),
    ({"gpu-fraction": "0.5"}, None, (None, 0.5)),
    ({"gpu-memory": "1000"}, None, (1000 * MIB, None)),
    # NvFractions: the request, else the limit; compute follows memory if it is not requested.
    ({REQUEST: "4096Mi", LIMIT: "8192Mi"}, 16384, (4096 * MIB, 0.25)),
    ({LIMIT: "8Gi"}, 16384, (8 * GIB, 0.5)),
    ({REQUEST: "2Gi", PORTION: "0.5"}, 16384, (2 * GIB, 0.5)),
    # gpu_sharing_nvfractions.go: before what a pod requests as a whole.
    ({REQUEST: "1Gi", "gpu-fraction": "0.25", "gpu-memory": "2048"}, 16384, (GIB, 1 / 16)),
    # The mutation of gpu-memory, and what the binder adds to gpu-fraction.
    ({REQUEST: "2Gi", "gpu-memory": "2048"}, 16384, (2 * GIB, 0.125)),
    ({REQUEST: "4096Mi", "gpu-fraction": "0.25", PORTION: "0.25"}, 16384, (4096 * MIB, 0.25)),
    # Keys that request nothing: without a memory key, of kai-gpu-fractioning README.md,
    # docs/gpu-sharing/README.md and gpu_fractions.go.
    ({PORTION: "0.25", "gpu-fraction": "0.5"}, 16384, (8 * GIB, 0.5)),
    ({REQUEST: "4Gi", "nvidia.com/container.main.gpu-compute.mode": "sm-sharing"}, 16384, (4 * GIB, 0.25)),
    ({REQUEST: "4Gi", "kai.scheduler/gpu-compute-sharing-mode": "time-slicing"}, 16384, (4 * GIB, 0.25)),
    (
        {REQUEST: "4Gi", "kai.scheduler/container.main.gpu-memory.portion.limit": "0.8"},
        16384,
        (4 * GIB, 0.25),
    ),
]


@pytest.mark.parametrize(("annotations", "mebibytes", "entitled"), REQUESTS, ids=range(len(REQUESTS)))
def test_requests_entitle(annotations, mebibytes, entitled, objections):
    size = None if mebibytes is None else memory(0, mebibytes * MIB)
    holding = only(shared(fraction("a", annotations), gpus=gpu(memory=size), objections=objections))
    assert (holding.memory_entitled, holding.compute_entitled) == entitled
    assert not objections.counts


OTHER_REQUEST = "nvidia.com/container.other.gpu-memory.request"
MALFORMED = [
    # The first ones are those of pkg/nodescaleadjuster and gpu_request_validator_test.go.
    *({"gpu-fraction": text} for text in ("abc", "0", "1.5", "-0.5", "", "NaN", "inf", "1/2", "0_1", " 0.5")),
    *({"gpu-fraction": text} for text in ("\u0660.\u0665", LONG, "1e-999999999")),
    *({"gpu-memory": text} for text in ("b4f", "0", "9" * 5000, "1_000", "2Gi", "-5")),
    *({REQUEST: "lots", "gpu-fraction": "0.5"}, {REQUEST: "-1Gi"}, {REQUEST: "NaN", LIMIT: "1Gi"}),
    *({REQUEST: "0"}, {LIMIT: "", "gpu-memory": "1000"}, {REQUEST: "9e99"}),
]
# The memory stays known.
PARTLY = [{REQUEST: "1Gi", PORTION: "50%"}, {OTHER_REQUEST: "1Gi"}, {REQUEST: "1Gi", OTHER_REQUEST: "2Gi"}]


@pytest.mark.parametrize("annotations", [*MALFORMED, *PARTLY], ids=range(len(MALFORMED) + len(PARTLY)))
def test_malformed_requests_are_objected_to(annotations, objections):
    """The fraction stays in place, no other annotation replaces the request, its neighbour is known."""
    holdings = shared(fraction("a", annotations), fraction("b"), objections=objections)
    entitled = (GIB, 1 / 16) if annotations in PARTLY else (None, None)
    by_holder = by(holdings, "holder", "memory_entitled", "compute_entitled")
    assert by_holder == {container("a"): entitled, container("b"): (8 * GIB, 0.5)}
    assert objections.counts == {"kai_annotation": 1}


@pytest.mark.parametrize(
    ("annotations", "shown"),
    [
        ({"gpu-fraction": "0.5"}, (8 * GIB, "none")),
        ({REQUEST: "4Gi", DEVICES: f"{UUID},{OTHER_UUID}"}, (4 * GIB, "soft")),
    ],
)
def test_a_fraction_of_several_gpus_is_one_of_each(annotations, shown, objections):
    """A label for each group: pkg/binder/binding/resourcereservation/resource_reservation_test.go."""
    labels = {f"runai-gpu-group/{group}": group for group in (GROUP, OTHER_GROUP)}
    holdings = shared(
        pod("a", annotations | {"gpu-fraction-num-devices": "2"}, labels=labels),
        reservation(OTHER_GROUP, OTHER_UUID, OTHER_NAME),
        gpus=[gpu(), numbered(1, 1)],
        allocated=[*reserved(), *reserved(OTHER_UUID, OTHER_NAME)],
        offered=[*whole(), *whole(OTHER_UUID)],
        objections=objections,
    )
    assert where(holdings) == {"a": [KEY, OTHER]}
    assert set(rows(holdings, "memory_entitled", "isolation")) == {shown}
    assert not objections.counts


def test_the_annotation_names_the_container():
    """docs/gpu-sharing: gpu-fraction-container-name, of init containers as well; else the first."""
    asked = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-workload"}
    two = {"containers": ("proxy", "gpu-workload"), "init": ("setup",)}
    by_init = asked | {"gpu-fraction-container-name": "setup"}
    assert only(shared(fraction("a", asked, **two))).holder.container == "gpu-workload"
    assert only(shared(fraction("a", by_init, **two))).holder.container == "setup"
    assert only(shared(fraction("a", **two))).holder.container == "proxy"


def test_a_missing_container_is_objected_to(objections):
    asked = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "nobody"}
    assert only(shared(fraction("a", asked), objections=objections)).holder == container("a")
    assert objections.counts == {"kai_annotation": 1}


@pytest.mark.parametrize("text", ["a3", "3", "-1", "0", "9" * 5000])
def test_a_number_of_devices_that_contradicts_the_groups_is_objected_to(text, objections):
    """pkg/nodescaleadjuster: "a3" must fail."""
    asked = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": text}
    assert where(shared(fraction("a", asked), objections=objections)) == {"a": [KEY]}
    assert objections.counts == {"kai_annotation": 1}


def test_a_reservation_may_be_named_by_a_hash():
    """resource_reservation.go since 0.16: made of node and group."""
    name = "gpu-reservation-9b5f1c0d2e3a4b67"
    found = [fraction("a"), reservation(name=name)]
    holdings = resolve(gpu(), reserved(name=name), whole(), pods=pods(*found))
    assert only(holdings).holder == container("a")
    assert holdings.unresolved == {}


def test_the_key_names_the_container():
    for name, more in {
        "gpu-workload": {"containers": ("proxy", "gpu-workload")},
        "setup": {"init": ("setup",)},
        "a.b": {"containers": ("proxy", "a.b")},
    }.items():
        asked = {f"nvidia.com/container.{name}.gpu-memory.request": "1Gi"}
        assert only(shared(fraction("a", asked, **more))).holder.container == name


@pytest.mark.parametrize(
    ("annotations", "isolation"),
    [
        ({REQUEST: "1Gi", DEVICES: UUID}, "soft"),
        ({REQUEST: "1Gi", DEVICES: CDI}, "soft"),
        ({REQUEST: "1Gi", "gpu-fraction": "0.5", DEVICES: UUID}, "soft"),
        ({REQUEST: "1Gi"}, "none"),
        ({REQUEST: "1Gi", DEVICES: ""}, "none"),
        ({"gpu-fraction": "0.5"}, "none"),
    ],
)
def test_a_limit_of_memory_is_enforced_if_the_binder_names_the_gpus(annotations, isolation):
    """It does so in the mode NvFractions only; any pod may have the request."""
    holdings = shared(fraction("a", annotations))
    assert (only(holdings).sharing, only(holdings).isolation) == ("kai", isolation)
    assert (holdings.devices[KEY].sharing, holdings.devices[KEY].isolation) == ("kai", isolation)


def test_a_gpu_with_an_unlimited_fraction_is_not_isolated():
    limited = fraction("a", {REQUEST: "8Gi", DEVICES: UUID})
    holdings = shared(limited, fraction("b", {"gpu-fraction": "0.25"}))
    assert by(holdings, "holder.pod", "isolation") == {"a": "soft", "b": "none"}
    assert holdings.devices[KEY].isolation == "none"
    assert holdings.devices[KEY].slices == (SliceCount("nvidia.com/gpu", None, 2),)


def test_the_library_of_hami_limits_and_meters_its_containers():
    """Project-HAMi/KAI-resource-isolator: containers/<uid of the pod>_<container>/usage.cache."""
    use = DeviceUse(device=UUID[:40], memory_limit=4000 * MIB, memory_used=GIB)
    found = [fraction(name, {"gpu-memory": "4000"}) for name in ("a", "b")]
    holdings = shared(*found, files=cached(use))
    by_holder = by(holdings, "holder.pod", "isolation", "meter")
    assert by_holder == {"a": ("soft", Meter(source="hami", memory=GIB, compute=None)), "b": ("none", None)}
    assert set(rows(holdings, "memory_entitled")) == {4000 * MIB}


def test_the_cache_is_that_of_the_container_with_the_fraction():
    asked = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-workload"}
    two = fraction("a", asked, containers=("proxy", "gpu-workload"))
    use = DeviceUse(device=UUID, memory_limit=8 * GIB, memory_used=GIB)
    assert only(shared(two, files=cached(use, name="gpu-workload"))).isolation == "soft"
    other = only(shared(two, files=cached(use, name="proxy")))
    assert (other.isolation, other.meter) == ("none", None)


def test_a_library_without_a_limit_does_not_isolate():
    """KAI limits only with its plugin; use is metered all the same."""
    holding = only(shared(fraction("a"), files=cached(DeviceUse(device=UUID, memory_used=GIB))))
    assert (holding.isolation, holding.meter) == ("none", Meter(source="hami", memory=GIB, compute=None))


@pytest.mark.parametrize(
    "files",
    [{}, cached(), cached(DeviceUse(device=UUID, memory_limit=GIB, memory_used=1), uid="uid-b")],
    ids=["none", "not begun", "of another pod"],
)
def test_without_a_cache_nothing_is_limited(files):
    holding = only(shared(fraction("a"), files=files))
    assert (holding.isolation, holding.meter) == ("none", None)


AMOUNTS = {"7680Mi": 7680 * MIB, "1G": 10**9, "1.5Gi": 3 * GIB // 2, ".5Gi": GIB // 2, "1.5e9": 1_500_000_000}
AMOUNTS |= {"2e9": 2 * 10**9, "1024": 1024, "1.0000000001Gi": GIB}
AMOUNTS |= dict.fromkeys(["1.5.5Gi", "0.0Gi", "1,5Gi", " 1Gi", "500m", "9" * 5000, "\u0661Gi"])


@pytest.mark.parametrize(("text", "amount"), AMOUNTS.items())
def test_amounts_of_memory_are_read(text, amount):
    assert read_memory(text) == amount


def test_a_recording_masks_the_container_in_keys():
    for key in (REQUEST, LIMIT, DEVICES, PORTION):
        for system in (Kai, KaiLimited):
            assert system.reads(key)["name"] == "main"


def test_a_pod_that_is_not_bound_has_nothing():
    """An annotation without a group is what the pod would like to have."""
    holdings = shared(fraction("a", group=""), fraction("b", phase="Succeeded"))
    assert (holdings.holdings, holdings.unresolved) == ((), {})


def test_a_pod_with_another_type_of_resource_has_no_fraction():
    regular = fraction("a", {"received-resource-type": "Regular"})
    assert shared(regular).holdings == ()


def test_a_reservation_without_fractions_holds_nothing():
    holdings = shared()
    assert (holdings.holdings, holdings.unresolved) == ((), {})


def test_a_fraction_without_a_reservation_is_unresolved():
    holdings = resolve(gpu(), [], whole(), pods=pods(fraction("a")))
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})
    assert holdings.unresolved_holders == {container("a")}


def test_a_gpu_that_is_not_here_is_unresolved():
    holdings = shared(fraction("a"), gpus=numbered(0, 0))
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})


def test_the_kubelet_outweighs_the_annotation():
    text = reservation(device=OTHER_UUID)
    gpus = [gpu(), numbered(1, 1)]
    holdings = resolve(gpus, reserved(), whole(), pods=pods(text, fraction("a")))
    assert where(holdings) == {"a": [KEY]}


@pytest.mark.parametrize(("text", "found"), [(OTHER_UUID, OTHER), ("1", OTHER), ("0", KEY)])
def test_the_annotation_names_the_gpu_if_the_kubelet_does_not(text, found):
    """A UUID, and in older releases the index, which is no minor."""
    gpus = [gpu(identity=replace(gpu().identity, minor=1)), numbered(1, 0)]
    holdings = resolve(gpus, [], whole(), pods=pods(reservation(device=text), fraction("a")))
    assert where(holdings) == {"a": [found]}


@pytest.mark.parametrize(("text", "objected"), [("-1", 0), ("", 0), (None, 0), ("card0", 1), ("9" * 5000, 1)])
def test_an_annotation_that_names_no_gpu_leaves_the_fraction_unresolved(text, objected, objections):
    everything = pods(reservation(device=text), fraction("a"))
    holdings = resolve(gpu(), [], whole(), objections, pods=everything)
    assert holdings.unresolved == {"nvidia.com/gpu": 1}
    assert objections.counts.total() == objected


def test_contradicting_reservations_leave_the_fraction_unresolved():
    second = reservation(GROUP, OTHER_UUID, OTHER_NAME)
    allocated = [*reserved(), *reserved(OTHER_UUID, OTHER_NAME)]
    holdings = shared(fraction("a"), second, gpus=[gpu(), numbered(1, 1)], allocated=allocated)
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})


@pytest.mark.parametrize(
    "known",
    [None, pods(*(replace(known, details=None) for known in (reservation(), fraction("a"))))],
    ids=["no pods", "names only"],
)
def test_without_the_pods_objects_the_holders_are_unknown(known):
    holdings = resolve(gpu(), reserved(), whole(), pods=known)
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})
    assert list(holdings.blind) == ["kai"]


@pytest.mark.parametrize(
    "found",
    [
        reservation(where=("kai-resource-reservation", "trainer")),
        reservation(labels={}),
        reservation(where=("team-a", "resource-reservation")),
    ],
    ids=["container", "label", "namespace"],
)
def test_a_pod_that_only_looks_like_a_reservation_holds_its_gpu(found):
    """A tenant could hide a holding otherwise."""
    allocated = reserved(where=(found.namespace, found.containers[0]))
    holdings = resolve(gpu(), allocated, whole(), pods=pods(found))
    assert where(holdings) == {found.name: [KEY]}
    assert only(holdings).sharing == "exclusive"


def test_reservations_may_be_kept_in_a_namespace_of_another_name():
    elsewhere = ("gpu-reservations", "resource-reservation")
    everything = pods(reservation(where=elsewhere), fraction("a"))
    holdings = resolve(gpu(), reserved(where=elsewhere), whole(), pods=everything)
    assert where(holdings) == {"a": [KEY]}


def test_pods_with_gpus_of_their_own_are_not_affected():
    gpus, allocated = [gpu(), numbered(1, 1)], [*reserved(), *held("b", OTHER_UUID)]
    holdings = shared(fraction("a"), pod("b"), gpus=gpus, allocated=allocated)
    assert by(holdings, "holder.pod", "sharing") == {"a": "kai", "b": "exclusive"}


def test_a_shared_gpu_counts_once():
    card = gpu([process(1, 2 * GIB), process(2, 3 * GIB)], {1: 20, 2: 30}, used=6 * GIB)
    annotated = pods(reservation(), fraction("a"), fraction("b"))
    holdings = resolve_holdings([card], allocations(reserved(), whole()), NodeFacts(pods=annotated))
    seen = workloads({1: "a", 2: "b"})
    joined = attribute([card], holdings, seen)
    assert {each.holder.pod for each in joined.containers} == {"a", "b"}
    assert (row_of(joined, "a").memory_used, row_of(joined, "b").memory_used) == (2 * GIB, 3 * GIB)
    assert sum(each.memory_entitled or 0 for each in joined.containers) == card.memory.total
    assert joined.gpus[0].unattributed_memory == GIB
    assert joined.inconsistent == ()


texts = st.text(max_size=40) | st.from_regex(r"[0-9.eE+-]{0,30}", fullmatch=True)


@given(
    st.dictionaries(
        st.sampled_from(["gpu-fraction", "gpu-memory", "received-resource-type", REQUEST, LIMIT, PORTION]),
        texts,
    ),
    texts,
)
def test_any_text_costs_only_its_pod(annotations, text):
    annotated = pods(
        reservation(device=text),
        fraction("a", annotations),
        reservation(OTHER_GROUP, OTHER_UUID, OTHER_NAME),
        fraction("b", group=OTHER_GROUP),
    )
    holdings = resolve([gpu(), numbered(1, 1)], reserved(OTHER_UUID, OTHER_NAME), whole(), pods=annotated)
    assert where(holdings)["b"] == [OTHER]
    for each in holdings.holdings:
        assert each.memory_entitled is None or each.memory_entitled >= 0
        assert each.compute_entitled is None or each.compute_entitled > 0
