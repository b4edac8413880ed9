"""Unchanged entries of the kubelet's answers are decoded once."""

import gc
import weakref

import pytest

from podresources import messages
from podresources.messages import Unchanged


def _answer(**ids_of: list[str]) -> bytes:
    answer = messages.ListPodResourcesResponse()
    for name, ids in ids_of.items():
        container = answer.pod_resources.add(namespace="ml", name=name).containers.add(name="main")
        container.devices.add(resource_name="nvidia.com/gpu", device_ids=ids)
    encoded: bytes = answer.SerializeToString()
    return encoded


def _held(listed: messages.Listed) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for allocation in listed.allocated:
        held.setdefault(allocation.holder.pod, []).append(allocation.device_id)
    return held


def test_a_changed_pod_is_read_again() -> None:
    lists = messages.Lists()
    assert _held(lists.listed(_answer(one=["a"], two=["b"]))) == {"one": ["a"], "two": ["b"]}
    assert _held(lists.listed(_answer(two=["b"], one=["a", "c"]))) == {"one": ["a", "c"], "two": ["b"]}
    assert _held(lists.listed(_answer(two=["b"]))) == {"two": ["b"]}
    assert _held(lists.listed(_answer(one=["a"], two=["b"]))) == {"one": ["a"], "two": ["b"]}


def test_a_pod_that_stays_is_not_read_again() -> None:
    """The records of a pod whose bytes are the same are the same objects."""
    lists = messages.Lists()
    first = lists.listed(_answer(one=["a"], two=["b"])).allocated[0]
    assert lists.listed(_answer(three=["c"], one=["a"])).allocated[0] is first


def test_entries_of_one_pod_are_merged() -> None:
    once = _answer(one=["b"], two=["x"])
    again = _answer(one=["a", "b"])
    assert _held(messages.Lists().listed(once + again)) == {"one": ["a", "b"], "two": ["x"]}


class _Made:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload


def test_what_is_not_repeated_is_let_go() -> None:
    """Of payloads that come and go, only those of the last read are kept."""
    unchanged = Unchanged(_Made)
    made = [weakref.ref(value) for value in unchanged.of(b"%d" % number for number in range(100))]
    assert [value.payload for value in unchanged.of([b"7", b"new"])] == [b"7", b"new"]
    gc.collect()
    assert [number for number, value in enumerate(made) if value() is not None] == [7]


def test_an_answer_that_cannot_be_read_changes_nothing() -> None:
    """After it, what was known before still is."""
    lists = messages.Lists()
    first = lists.listed(_answer(one=["a"])).allocated[0]
    with pytest.raises(messages.DECODE_ERRORS):
        lists.listed(_answer(two=["b"]) + b"\x0a\x02\xff\xff")
    assert lists.listed(_answer(one=["a"])).allocated[0] is first
