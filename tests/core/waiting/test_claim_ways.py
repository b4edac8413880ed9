"""What could help a pod that waits for devices of DRA drivers: each way holds once it is carried out."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exporter.waiting.answer import Answer, Answering
from exporter.waiting.gpu_facts import GpuFacts, IdlePod
from exporter.waiting.objects import (
    DeviceClass,
    DeviceName,
    Objects,
    OfferedDraDevice,
    PlacedPod,
    PodKey,
    ResourceClaim,
    Taint,
    WaitingPod,
)
from exporter.waiting.verdict import Judge
from exporter.waiting.way import Way
from tests.core.waiting.records import DRIVER, claim, cluster, node, piece, pod, request

OF = f"device.attributes['{DRIVER}']"
CLASSES = {
    "small": DeviceClass(
        name="small", selectors=(f"{OF}.size == 'small'",), extended_resource="ex.com/small"
    ),
    "big": DeviceClass(name="big", selectors=(f"{OF}.size == 'big'",)),
    "any": DeviceClass(name="any"),
}
SICK = Taint("sick", "xid", "NoExecute")
ASKING = pod(claims=("mine",))
HOURS = 3600.0
GIB = 1 << 30


def device(name: str, place: str = "n1", size: str = "small", **more: Any) -> OfferedDraDevice:
    """Return a device of a node."""
    gigabytes = {"small": 10, "big": 80}[size]
    return OfferedDraDevice(
        name=DeviceName(DRIVER, place, name),
        attributes={f"{DRIVER}/size": size},
        capacity={f"{DRIVER}/memory": gigabytes * GIB},
        **more,
    )


def mine(device_class: str = "small", **more: Any) -> dict[tuple[str, str], ResourceClaim]:
    """Return the claim of the pod that waits."""
    return claim(request(device_class=device_class, **more), name="mine")


def used(device: OfferedDraDevice, *users: str, owner: str = "") -> dict[tuple[str, str], ResourceClaim]:
    """Return a claim that has a device."""
    name = f"of-{device.name.pool}-{device.name.device}"
    return claim(request(), name=name, allocated=(device.name,), users=frozenset(users), owner=owner)


def holder(name: str, **more: Any) -> PlacedPod:
    """Return a pod on the node."""
    return PlacedPod(node="n1", requests={"pods": 1}, key=PodKey("ml", name), **more)


def idle(*names: str) -> GpuFacts:
    """Return that pods are idle, the first one for longest."""
    hours = range(len(names), 0, -1)
    return GpuFacts(
        at=0.0,
        idle=tuple(IdlePod(PodKey("ml", n), "n1", h * HOURS) for n, h in zip(names, hours, strict=True)),
    )


def answered(objects: Objects, known: GpuFacts = GpuFacts(at=0.0), waiting: WaitingPod = ASKING) -> Answer:  # noqa: B008 - it is frozen
    """Return the answer for a pod."""
    return Answering(replace(objects, waiting=(waiting,)), known, 60.0).answer(waiting)


def of_one_node(*devices: OfferedDraDevice, **more: Any) -> Objects:
    """Return a cluster with one node, with the claim of the pod that waits."""
    fields: dict[str, Any] = {"classes": CLASSES, "slices": (piece(*devices),)}
    fields["claims"] = mine() | more.pop("claims", {})
    return cluster(node(**more.pop("of_node", {})), **(fields | more))


def test_a_pod_that_is_ending_gives_back_the_devices_of_its_claim():
    full = of_one_node(
        device("a"), claims=used(device("a"), "old", owner="old"), placed=(holder("old", ending=True),)
    )

    (way,) = answered(full).ways

    assert (way.kind, way.pods, way.unjudged) == ("ending", (PodKey("ml", "old"),), ())


def test_an_idle_pod_gives_back_the_devices_of_its_claim():
    placed = (holder("notebook"), holder("other"))
    full = of_one_node(device("a"), claims=used(device("a"), "notebook"), placed=placed)

    (way,) = answered(full, idle("other", "notebook")).ways

    assert (way.kind, way.pods, way.others) == ("idle", (PodKey("ml", "notebook"),), 0)
    assert way.what == "scale down ml/notebook on n1, idle for 1 h 0 min"


def test_a_shared_claim_is_free_with_its_last_user_only():
    placed = (holder("a"), holder("b"))
    full = of_one_node(device("a"), claims=used(device("a"), "a", "b"), placed=placed)

    both, one = answered(full, idle("a", "b")), answered(full, idle("a"))

    assert [way.pods for way in both.ways] == [(PodKey("ml", "a"), PodKey("ml", "b"))]
    assert not one.ways
    assert [each.what for each in one.not_helping] == [
        "ml/a on n1 is idle, but claim of-n1-a has other users"
    ]


def test_a_claim_whose_users_are_not_known_or_none_is_not_freed():
    placed = (holder("a", ending=True),)
    for users in (None, frozenset[str](), frozenset({"a", "elsewhere"})):
        taken = {key: replace(each, users=users) for key, each in used(device("a"), "a").items()}

        assert not answered(of_one_node(device("a"), claims=taken, placed=placed), idle("a")).ways


def test_a_pod_of_another_namespace_is_not_the_user():
    other = PlacedPod("n1", {"pods": 1}, ending=True, key=PodKey("web", "old"))
    full = of_one_node(device("a"), claims=used(device("a"), "old"), placed=(other,))

    assert not answered(full).ways


def test_a_claim_that_the_pod_shares_is_allocated_again_unless_it_is_deleted_with_its_pod():
    """Its node has room for one pod only."""
    placed = (holder("old", ending=True),)
    for owner, expected in (("", ["ending"]), ("old", [])):
        own = claim(
            request(device_class="small"),
            name="mine",
            allocated=(device("a").name,),
            users=frozenset({"old"}),
            owner=owner,
        )
        objects = of_one_node(device("a"), of_node={"allocatable": {"cpu": 1000, "pods": 1}}, placed=placed)

        answer = answered(replace(objects, claims=own))

        assert [way.kind for way in answer.ways] == expected


def test_an_idle_pod_whose_devices_are_not_missing_is_not_blamed():
    """Processors are missing, a device is free."""
    busy = PlacedPod("n1", {"cpu": 3500, "pods": 1}, key=PodKey("ml", "busy"))
    full = of_one_node(device("a"), device("b"), claims=used(device("a"), "busy"), placed=(busy,))

    assert not answered(full, idle("busy")).ways
    # A device is missing as well.
    short = replace(full, slices=(piece(device("a")),))
    assert [way.kind for way in answered(short, idle("busy")).ways] == ["idle"]


def test_devices_of_an_extended_resource_are_given_back_too():
    asking = pod(requests={"ex.com/small": 1, "pods": 1})
    full = of_one_node(
        device("a"), claims=used(device("a"), "old", owner="old"), placed=(holder("old", ending=True),)
    )

    assert [way.kind for way in answered(full, waiting=asking).ways] == ["ending"]


def test_counters_are_given_back_with_a_device():
    """The whole GPU is held by an idle pod, and its memory slices with it."""
    whole = device("whole", size="big", counters={"gpu/memory": 8})
    part = device("part", counters={"gpu/memory": 1})
    slices = (piece(whole, part, counters={"gpu/memory": 8}),)
    full = of_one_node(slices=slices, claims=used(whole, "notebook"), placed=(holder("notebook"),))

    assert [way.kind for way in answered(full, idle("notebook")).ways] == ["idle"]


def test_a_tainted_device_is_a_way_of_those_who_repair():
    sick = (device("a", taints=(SICK,)), device("b", taints=(SICK, Taint("team", "", "NoSchedule"))))

    (one,) = answered(of_one_node(*sick)).ways
    (two,) = answered(replace(of_one_node(*sick), claims=mine(count=2))).ways

    assert (one.kind, one.asked) == ("device", "on-call")
    assert one.what == "repair a of n1: taint sick=xid:NoExecute keeps new pods away"
    assert (
        two.what == "repair a and b of n1: taints sick=xid:NoExecute and team:NoSchedule keep new pods away"
    )
    assert not answered(of_one_node(device("a", size="big", taints=(SICK,)))).ways


def test_a_node_whose_cordon_alone_keeps_the_pod_from_a_free_device():
    cordoned = {"cordoned": True}

    (way,) = answered(of_one_node(device("a"), of_node=cordoned)).ways

    assert way.what == "uncordon n1: the pod fits there"
    full = of_one_node(device("a"), claims=used(device("a"), "x"), of_node=cordoned, placed=(holder("x"),))
    assert not answered(full).ways


def test_a_larger_device_of_another_class_could_be_asked_for():
    full = of_one_node(
        device("a"), device("b", size="big"), claims=used(device("a"), "x"), placed=(holder("x"),)
    )
    two_classes = {name: CLASSES[name] for name in ("small", "big")}

    (way,) = answered(replace(full, classes=two_classes)).ways

    assert (way.kind, way.resource, way.instead_of, way.asked) == ("larger", "big", "small", "its owner")
    assert way.what == (
        "ask for device class big instead of small in request gpu: its devices on n1 are as large or larger"
    )


def test_selectors_that_allow_no_larger_device_would_have_to_go():
    full = of_one_node(
        device("a"), device("b", size="big"), claims=used(device("a"), "x"), placed=(holder("x"),)
    )
    own = mine(selectors=(f"{OF}.size == 'small'",))

    (way,) = answered(replace(full, claims=full.claims | own)).ways  # type: ignore[operator]

    assert "instead of small in request gpu, without its selectors: " in way.what
    two = answered(
        replace(full, claims=full.claims | own), waiting=replace(ASKING, claims=("mine", "of-n1-a"))
    )  # type: ignore[operator]
    assert "in request gpu of claim mine, without its selectors: " in two.ways[0].what


def test_pods_whose_claims_differ_only_in_name_share_an_answer():
    full = of_one_node(device("a"), claims=used(device("a"), "old"), placed=(holder("old", ending=True),))
    claims = (full.claims or {}) | claim(request(device_class="small"), name="other")
    claims |= claim(request(device_class="big"), name="big")
    answering = Answering(replace(full, claims=claims), GpuFacts(at=0.0), 60.0)

    first, same, other = (answering.answer(pod(claims=(name,))) for name in ("mine", "other", "big"))

    assert first.ways is same.ways
    # One that was generated for another pod may be deleted with that.
    foreign = claim(request(device_class="small"), name="foreign", owner="old")
    again = Answering(replace(full, claims=claims | foreign), GpuFacts(at=0.0), 60.0)
    assert again.answer(pod(claims=("mine",))).ways
    assert not again.answer(pod(claims=("foreign",))).ways
    assert not other.ways
    assert "there is no claim gone" in answering.answer(pod(claims=("gone",))).before
    assert "there is no claim lost" in answering.answer(pod(claims=("lost",))).before


def test_a_class_whose_devices_may_be_smaller_is_not_named():
    """Class any has the small device too, which the scheduler may choose."""
    big = of_one_node(
        device("a"), device("b", size="big"), claims=used(device("b"), "x"), placed=(holder("x"),)
    )
    asking = replace(big, claims=mine("big") | used(device("b"), "x"))

    assert not answered(asking).ways
    # One for all nodes may be chosen as well.
    shared = piece(device("c", "shared", size="small"), node="", pool="shared")
    asking_small = of_one_node(
        slices=(piece(device("b", size="big"), device("d")), shared),
        claims=mine() | used(device("d"), "x") | used(device("c", "shared"), "y"),
        classes={
            "small": CLASSES["small"],
            "gpu": DeviceClass(name="gpu", selectors=(f"{OF}.size == 'big'",)),
        },
    )
    assert [way.resource for way in answered(asking_small).ways] == ["gpu"]
    tiny = replace(
        device("c", "shared"), capacity={f"{DRIVER}/memory": GIB}, attributes={f"{DRIVER}/size": "big"}
    )
    with_tiny = (*(asking_small.slices or ())[:1], replace(shared, devices=(tiny,)))
    assert not answered(replace(asking_small, slices=with_tiny)).ways
    # Without any device of its own class it is not known how large that would be.
    assert not answered(replace(asking, slices=(piece(device("a")),))).ways


def test_what_is_not_judged_of_a_claim_stays_with_the_way():
    taken = used(device("a"), "old")
    full = of_one_node(device("a"), claims=taken, placed=(holder("old", ending=True),))
    ((key, own),) = mine().items()
    doubtful = replace(own, unread=("constraints of a claim",))

    (way,) = answered(replace(full, claims=taken | {key: doubtful})).ways

    assert way.unjudged == ("constraints of a claim",)


NODES = ("n1", "n2")


@st.composite
def clusters(draw: Any) -> tuple[Objects, GpuFacts]:
    """Draw a small cluster most of whose devices are held, tainted, or of the other size."""
    devices = [
        device(
            f"d{number}",
            name,
            draw(st.sampled_from(("small", "big"))),
            taints=draw(st.sampled_from(((), (), (SICK,)))),
            counters=draw(st.sampled_from(({}, {"gpu/memory": 1}, {"gpu/memory": 2}))),
        )
        for name in NODES
        for number in range(draw(st.integers(1, 3)))
    ]
    slices = tuple(
        piece(
            *(each for each in devices if each.name.pool == name),
            node=name,
            pool=name,
            counters={"gpu/memory": draw(st.integers(1, 4))},
        )
        for name in NODES
    )
    placed = tuple(
        PlacedPod(
            draw(st.sampled_from(NODES)),
            {"cpu": draw(st.sampled_from((0, 3500))), "pods": 1},
            ending=draw(st.sampled_from((False, False, True))),
            key=PodKey("ml", f"p{number}"),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    claims = mine(draw(st.sampled_from(("small", "small", "big"))), count=draw(st.integers(1, 2)))
    for each in devices:
        there = sorted(pod.key.name for pod in placed if pod.node == each.name.pool)
        if there and draw(st.booleans()):
            users = draw(st.lists(st.sampled_from(there), min_size=1, max_size=2, unique=True))
            claims |= used(each, *users, owner=draw(st.sampled_from(("", users[0]))))
    known = GpuFacts(
        at=0.0, idle=tuple(IdlePod(each.key, each.node, HOURS) for each in placed if draw(st.booleans()))
    )
    nodes = [node(name, cordoned=draw(st.sampled_from((False, False, True)))) for name in NODES]
    return cluster(*nodes, placed=placed, claims=claims, slices=slices, classes=CLASSES), known


def carried_out(way: Way, objects: Objects) -> Objects:
    """Return the objects after a way, by its words and fields rather than by its trial."""
    place = objects.nodes[way.node]
    claims = dict(objects.claims or {})
    names = {key.name for key in way.pods}
    for key, each in (objects.claims or {}).items():
        if each.users and each.users <= names:
            claims.pop(key)
    slices = objects.slices or ()
    words = way.what.split()
    if way.kind == "device" and words[0] == "repair":
        repaired = way.what.removeprefix("repair ").partition(" of ")[0].replace(" and ", ", ").split(", ")
        slices = tuple(
            replace(
                each,
                devices=tuple(
                    replace(one, taints=()) if each.node == way.node and one.name.device in repaired else one
                    for one in each.devices
                ),
            )
            for each in slices
        )
    elif way.kind == "device":
        place = replace(place, cordoned=False)
    elif way.kind == "larger":
        ((key, own),) = [(key, each) for key, each in claims.items() if each.name == "mine"]
        requests = tuple(replace(each, device_class=way.resource) for each in own.requests)
        claims[key] = replace(own, requests=requests)
    return replace(
        objects,
        nodes={**objects.nodes, way.node: place},
        placed=tuple(each for each in objects.placed if each.key not in way.pods),
        claims=claims,
        slices=slices,
    )


@given(clusters())
def test_each_way_holds_once_it_is_carried_out(drawn: tuple[Objects, GpuFacts]):
    objects, known = drawn

    for way in answered(objects, known).ways:
        verdict = Judge(carried_out(way, objects)).judge(ASKING).by_node[way.node]
        assert verdict.answer == "fits", way
        assert not way.unjudged


@given(clusters())
def test_each_single_idle_pod_that_would_do_is_found(drawn: tuple[Objects, GpuFacts]):
    """If devices are missing on its node: else it is only in the way of processors."""
    objects, known = drawn
    before = Judge(objects).judge(ASKING).by_node
    if any(each.answer != "no" for each in before.values()):
        return
    roomy = replace(objects, placed=())
    lacking = {name for name, each in Judge(roomy).judge(ASKING).by_node.items() if each.answer == "no"}
    doing = False
    for each in known.idle or ():
        way = Way(kind="idle", node=each.node, what="", asked="", source="GPUs", pods=(each.key,))
        fits = Judge(carried_out(way, objects)).judge(ASKING).by_node[each.node].answer == "fits"
        (held,) = [other for other in objects.placed if other.key == each.key]
        out = before[each.node].filter in {"NodeResourcesFit", "DynamicResources"}
        doing = doing or (fits and out and not held.ending and each.node in lacking)

    found = {way.kind for way in answered(objects, known).ways}
    assert "idle" in found or not doing
