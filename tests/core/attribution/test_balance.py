"""The rules of the two balances of a GPU, one by one, and that both always add up."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.balance import DeviceFacts, GpuFacts, UseFacts, allocation, use
from exporter.model.balances import ALLOCATION_CLASSES, USE_CLASSES, divide

QUARTER = 0.25
SHARE = st.floats(0, 2, allow_nan=False)
FLAG = st.booleans()
DEVICES = st.builds(
    DeviceFacts,
    weight=st.floats(0, 1),
    shares=st.lists(st.none() | SHARE, max_size=4).map(tuple),
    holders_known=FLAG,
    offered=st.none() | FLAG,
    withdrawn=FLAG,
    withheld=st.floats(0, 1),
)
USES = st.builds(
    UseFacts,
    holders=SHARE,
    others=SHARE,
    unclear=SHARE,
    unattributed=st.none() | SHARE,
    holders_known=FLAG,
)
GPUS = st.builds(
    GpuFacts,
    devices=st.lists(DEVICES, max_size=7).map(tuple),
    read=FLAG,
    down=FLAG,
    layout_known=FLAG,
    use=st.none() | USES,
)
NANOSECONDS = st.integers(0, 10**12)


def device(*shares: float | None, weight: float = 1.0, **more: object) -> DeviceFacts:
    return replace(DeviceFacts(weight=weight, shares=shares), **more)


def allocated(*devices: DeviceFacts, **more: object) -> dict[str, float]:
    """Return the classes with a share in the allocation of a GPU, rounded."""
    return shown(allocation(replace(GpuFacts(devices=devices), **more)))


def used(held: float, **facts: object) -> dict[str, float]:
    """Return the classes with a share in the use of a GPU, rounded."""
    return shown(use(UseFacts(**facts), held))


def shown(parts: dict[str, float]) -> dict[str, float]:
    return {name: round(part, 9) for name, part in parts.items() if round(part, 9)}


def test_shares_beyond_the_gpu_are_all_of_it():
    assert allocated(device(0.7, 0.6)) == {"held": 1}


def test_the_rest_of_an_offered_device_is_free():
    assert allocated(device(QUARTER, QUARTER)) == {"held": 0.5, "free": 0.5}


@pytest.mark.parametrize("unknown", [device(QUARTER, None), device(QUARTER, holders_known=False)])
def test_what_a_container_may_hold_is_unknown(unknown):
    assert allocated(unknown) == {"held": 0.25, "unknown": 0.75}
    assert allocated(replace(unknown, offered=False)) == {"held": 0.25, "unknown": 0.75}
    assert allocated(unknown, down=True) == {"held": 0.25, "unknown": 0.75}


def test_a_lost_gpu_is_held_and_the_rest_of_it_down():
    assert allocated(device(QUARTER), down=True) == {"held": 0.25, "down": 0.75}
    assert allocated(device(offered=False), down=True) == {"down": 1}
    assert allocated(device(withheld=1.0), down=True) == {"down": 1}


def test_no_part_of_a_lost_gpu_is_unpartitioned():
    assert allocated(device(QUARTER, weight=0.5), down=True) == {"held": 0.25, "down": 0.75}


def test_a_device_that_no_driver_reads_is_held_as_far_as_that_is_known():
    assert allocated(device(QUARTER), read=False) == {"held": 0.25, "unknown": 0.75}


def test_what_is_withheld_of_an_offer_is_withdrawn():
    assert allocated(device(0.3, withheld=1 / 7)) == {"held": 0.3, "withdrawn": 0.1, "free": 0.6}
    assert allocated(device(1.0, withheld=1.0)) == {"held": 1}


def test_what_left_the_offer_is_withdrawn_and_what_never_was_in_it_not_offered():
    assert allocated(device(0.5, offered=False, withdrawn=True)) == {"held": 0.5, "withdrawn": 0.5}
    assert allocated(device(0.5, offered=False)) == {"held": 0.5, "not_offered": 0.5}


def test_without_known_offers_nothing_is_free_or_not_offered():
    assert allocated(device(0.5, offered=None)) == {"held": 0.5, "unknown": 0.5}
    assert allocated(device(0.5, offered=None), down=True) == {"held": 0.5, "down": 0.5}


def test_mig_devices_count_by_their_weight_and_the_rest_is_unpartitioned():
    parts = [device(3 / 7, weight=3 / 7), device(weight=2 / 7), device(1 / 7, weight=1 / 7)]
    expected = {"held": 4 / 7, "free": 2 / 7, "unpartitioned": 1 / 7}
    assert allocated(*parts) == {name: round(part, 9) for name, part in expected.items()}
    assert allocated() == {"unpartitioned": 1}


def test_with_an_incomplete_layout_the_rest_is_unknown():
    assert allocated(device(weight=0.5), layout_known=False) == {"free": 0.5, "unknown": 0.5}
    assert allocated(device(weight=0.5), layout_known=False, down=True) == {"down": 0.5, "unknown": 0.5}


def test_weights_beyond_the_gpu_are_scaled_down():
    assert allocated(device(1.0), device()) == {"held": 0.5, "free": 0.5}


def test_one_holder_may_use_what_another_leaves():
    """A holds a quarter and uses 0.9, B holds a quarter and uses nothing."""
    assert used(0.5, holders=0.9, unattributed=0.0) == {"holders": 0.9, "idle_free": 0.1}


def test_idle_time_is_first_that_of_what_is_held():
    assert used(0.5, holders=0.2, unattributed=0.1) == {
        "holders": 0.2,
        "others": 0.1,
        "idle_held": 0.3,
        "idle_free": 0.4,
    }
    assert used(0.9, holders=0.1, others=0.6, unattributed=0.0) == {
        "holders": 0.1,
        "others": 0.6,
        "idle_held": 0.3,
    }


def test_use_beyond_the_gpu_is_scaled_down():
    assert used(1.0, holders=0.9, others=0.3, unattributed=0.0) == {"holders": 0.75, "others": 0.25}
    assert used(1.0, holders=1.5, others=0.5, unclear=0.5, unattributed=None) == {
        "holders": 0.6,
        "others": 0.2,
        "unmeasured": 0.2,
    }


def test_use_that_may_be_a_holders_is_unmeasured_and_the_rest_idle():
    assert used(0.5, holders=0.2, unattributed=0.3, holders_known=False) == {
        "holders": 0.2,
        "unmeasured": 0.3,
        "idle_held": 0.3,
        "idle_free": 0.2,
    }
    assert used(0.5, unclear=0.3, unattributed=0.2) == {
        "others": 0.2,
        "unmeasured": 0.3,
        "idle_held": 0.5,
    }


def test_without_a_meter_all_that_no_container_uses_is_unmeasured():
    assert used(0.5, unattributed=None) == {"unmeasured": 1}
    assert used(0.5, holders=0.2, others=0.1, unattributed=None) == {
        "holders": 0.2,
        "others": 0.1,
        "unmeasured": 0.7,
    }
    assert shown(use(None, 0.5)) == {"unmeasured": 1}


@given(GPUS, NANOSECONDS)
def test_both_balances_add_up_to_the_time(facts, whole):
    shares = allocation(facts)
    for classes, parts in ((ALLOCATION_CLASSES, shares), (USE_CLASSES, use(facts.use, shares["held"]))):
        assert tuple(parts) == classes
        assert all(part >= 0 for part in parts.values())
        assert sum(parts.values()) == pytest.approx(1, abs=1e-9)
        divided = divide(whole, parts)
        assert tuple(divided) == classes
        assert min(divided.values()) >= 0
        assert sum(divided.values()) == whole


@given(GPUS, NANOSECONDS)
def test_a_class_has_its_share_of_the_time_to_the_nanosecond(facts, whole):
    shares = allocation(facts)
    divided = divide(whole, shares)
    assert all(abs(divided[name] - whole * part) <= 1 + whole * 1e-9 for name, part in shares.items())


@pytest.mark.parametrize("count", [3, 7, 11])
def test_no_class_has_time_by_rounding(count):
    parts = [device(1 / count if number % 2 else 0.0, weight=1 / count) for number in range(count)]
    assert divide(5_000_000_000, allocation(GpuFacts(devices=tuple(parts))))["unpartitioned"] == 0


@given(USES, st.floats(0, 1))
def test_the_idle_part_of_what_is_held_is_never_more_than_what_is_held(facts, held):
    assert use(facts, held)["idle_held"] <= held + 1e-9
