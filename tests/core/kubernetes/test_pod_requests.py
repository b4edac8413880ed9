"""A pod requests what the hungriest moment of its life needs, as the scheduler sums it."""

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.pod_requests import read_amounts, read_requests

Json = dict[str, Any]


def container(name: str = "main", *, sidecar: bool = False, **requests: str) -> Json:
    made: Json = {"name": name, "resources": {"requests": requests}}
    return made | ({"restartPolicy": "Always"} if sidecar else {})


def requested(spec: Json, status: Json | None = None, *, placed: bool = False) -> dict[str, int]:
    """Return what a pod requests, besides one pod."""
    read = read_requests({"spec": spec, "status": status or {}}, placed=placed)
    assert read.unread == ()
    amounts = dict(read.amounts)
    assert amounts.pop("pods") == 1
    return amounts


@pytest.mark.parametrize(
    ("expected", "spec"),
    [
        ({}, {}),
        ({"cpu": 1500}, {"containers": [container(cpu="1"), container(cpu="500m")]}),
        # Before the containers, init containers run one by one.
        ({"cpu": 3000}, {"containers": [container(cpu="1")], "initContainers": [container(cpu="3")] * 2}),
        # Sidecars go on running: with the containers, and with init containers that come later.
        (
            {"cpu": 2000},
            {"containers": [container(cpu="1")], "initContainers": [container(sidecar=True, cpu="1")]},
        ),
        (
            {"cpu": 5000},
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(sidecar=True, cpu="2"), container(cpu="3")],
            },
        ),
        (
            {"cpu": 3000},
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="3"), container(sidecar=True, cpu="2")],
            },
        ),
        # Requests of the whole pod replace sums of CPU, memory and huge pages; overhead comes on top.
        (
            {"cpu": 4250, "memory": 1 << 30, "nvidia.com/gpu": 1},
            {
                "containers": [container(**{"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"})],
                "resources": {"requests": {"cpu": "4", "nvidia.com/gpu": "9"}},
                "overhead": {"cpu": "250m"},
            },
        ),
        # Half bytes are summed before they are rounded, and what the scheduler does not count is left out.
        (
            {"memory": 1, "hugepages-2Mi": 1 << 21},
            {
                "containers": [
                    container(memory="500m", storage="1Gi"),
                    container(**{"memory": "500m", "hugepages-2Mi": "2Mi"}),
                ]
            },
        ),
    ],
)
def test_requests_of_a_pod(expected: dict[str, int], spec: Json) -> None:
    assert requested(spec) == expected
    # Without a resize, a pod takes what it requested.
    assert requested(spec, placed=True) == expected


RESIZED = {"containers": [container(cpu="2")]}


def status(pending: str = "", **more: Any) -> Json:
    conditions = [{"type": "PodResizePending", "reason": pending}] if pending else []
    return {"containerStatuses": [{"name": "main", **more}], "conditions": conditions}


@pytest.mark.parametrize(
    ("expected", "given_status"),
    [
        (3000, status(allocatedResources={"cpu": "3"})),
        (2000, status(allocatedResources={"cpu": "1"})),
        (4000, status(allocatedResources={"cpu": "1"}, resources={"requests": {"cpu": "4"}})),
        (1000, status("Infeasible", allocatedResources={"cpu": "1"})),
        (2000, status("Deferred", allocatedResources={"cpu": "1"})),
        (5000, {"allocatedResources": {"cpu": "5"}, "resources": {"requests": {"cpu": "1"}}}),
    ],
)
def test_a_pod_that_is_resized_takes_the_most_of_what_holds_now(expected: int, given_status: Json) -> None:
    assert requested(RESIZED, given_status, placed=True) == {"cpu": expected}
    assert requested(RESIZED, given_status) == {"cpu": 2000}


def test_a_whole_pod_that_is_resized_takes_the_most_too() -> None:
    spec = RESIZED | {"resources": {"requests": {"cpu": "4"}}}
    now = {"allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "5"}}}

    assert requested(spec, now, placed=True) == {"cpu": 6000}
    assert requested(spec, placed=True) == {"cpu": 4000}


def test_an_amount_that_cannot_be_read_is_named_and_costs_only_itself() -> None:
    requests: Json = {"cpu": "1", "memory": "much", "nvidia.com/gpu": 1}
    hostile: list[Any] = [None, 7, "x", {"resources": []}, {"resources": {"requests": "all"}}]
    spec = {"containers": [{"name": "main", "resources": {"requests": requests}}, *hostile]}

    for placed in (True, False):
        read = read_requests({"spec": spec}, placed=placed)
        assert read.amounts == {"cpu": 1000, "pods": 1}
        assert set(read.unread) == {"memory", "nvidia.com/gpu"}
    assert read_amounts({"allocatable": requests}, "allocatable").amounts == {"cpu": 1000}


PARTS = st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=5)


@given(PARTS, st.lists(st.integers(0, 5000), max_size=4), st.sampled_from(["memory", "nvidia.com/gpu"]))
def test_the_sum_is_the_most_of_all_moments(
    inits: list[tuple[bool, int]], mains: list[int], resource: str
) -> None:
    """Act the life of a pod out: at each moment, all that runs then is added up."""
    moments, running = [0], 0
    for sidecar, thousandths in inits:
        moments.append(running + thousandths)
        running += thousandths if sidecar else 0
    moments.append(running + sum(mains))

    spec = {
        "initContainers": [
            container(sidecar=sidecar, **{resource: f"{thousandths}m"}) for sidecar, thousandths in inits
        ],
        "containers": [container(**{resource: f"{thousandths}m"}) for thousandths in mains],
    }
    assert requested(spec).get(resource, 0) == ceil(Fraction(max(moments), 1000))
