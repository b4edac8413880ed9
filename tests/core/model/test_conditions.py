"""The rules that raise and clear conditions, and what they do with readings that are missing."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Condition, Ecc, Fabric, GpuIdentity, GpuReading, Nvlink, Repairs
from exporter.model.condition_signs import (
    FABRIC_CAUSES,
    REBOOTS,
    RESETS,
    UNCORRECTED_XIDS,
    Inputs,
    PendingXid,
    Sign,
)
from exporter.model.conditions import TABLE, judge_condition
from exporter.model.readings import RECOVERY_ACTIONS, FabricProblem
from exporter.model.xids import RECOVERY_SINCE, explain

AT = 1_700_000_000.0
VOLATILE = ("uncorrected", "volatile")
NO_REPAIR = Repairs(row_remap_pending=False, row_remap_failure=False)


def reading(**values: Any) -> GpuReading:
    """Return a healthy GPU with changes."""
    healthy: dict[str, Any] = {
        "identity": GpuIdentity(uuid="GPU-a", index=0, model="A100"),
        "recovery_action": "none",
        "repairs": NO_REPAIR,
        "ecc": Ecc(enabled=True, errors={VOLATILE: 0}),
        "clock_events": 0,
        "energy_millijoules": 1000,
        "read_at": AT,
    }
    return GpuReading(**healthy | values)


def inputs(watched: bool = True, **values: Any) -> Inputs:
    """Return the inputs of a GPU that is healthy but for these readings."""
    read = reading(**values)
    return Inputs(vendor=read.identity.vendor, reading=read, watched=watched)


def state(condition: Condition, given_inputs: Inputs) -> bool | None:
    """Return whether the GPU has the condition."""
    return judge_condition(condition, given_inputs).state


def test_every_condition_has_a_row():
    assert tuple(TABLE) == get_args(Condition)


@pytest.mark.parametrize("action", RECOVERY_ACTIONS)
def test_the_recovery_action_decides_between_reset_and_reboot(action: str):
    """A first step such as draining leaves open which of them comes next."""
    now = inputs(recovery_action=action)
    undecided = action not in {"none", *RESETS, *REBOOTS}

    assert state("needs_reset", now) is (None if undecided else action in RESETS)
    assert state("needs_reboot", now) is (None if undecided else action in REBOOTS)


@pytest.mark.parametrize(
    "repairs",
    [
        Repairs(row_remap_pending=True),
        Repairs(retired_pages_pending=True),
        Repairs(channel_repair_pending=True),
        Repairs(tpc_repair_pending=True),
    ],
    ids=["row", "page", "channel", "TPC"],
)
def test_a_pending_repair_needs_a_reset_unless_the_driver_asks_for_a_reboot(repairs: Repairs):
    """Also with drivers that do not report an action."""
    assert state("needs_reset", inputs(repairs=repairs)) is True
    assert state("needs_reset", inputs(repairs=repairs, recovery_action=None)) is True
    rebooting = inputs(repairs=repairs, recovery_action="reboot")
    assert (state("needs_reset", rebooting), state("needs_reboot", rebooting)) == (False, True)


def test_a_need_is_unknown_while_an_input_is():
    """A repair that the driver hides in MIG mode, a failed read, or XIDs that are not received."""
    hidden = {"recovery_action": None, "repairs": None, "withheld": {"repairs": "not supported"}}

    assert state("needs_reset", inputs(watched=False)) is None
    assert state("needs_reset", inputs(**hidden, mig_enabled=True)) is None
    assert state("needs_reset", inputs(**hidden, mig_enabled=False)) is False
    assert state("needs_reset", inputs(**hidden | {"withheld": {"repairs": "Timeout"}})) is None
    assert state("needs_reset", inputs(mig_enabled=True, repairs=None)) is False
    assert state("needs_reboot", inputs(recovery_action=None, repairs=None)) is None


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        (119, "needs_reset"),
        (151, "needs_reboot"),
        *((code, "uncorrected_memory_errors") for code in sorted(UNCORRECTED_XIDS)),
    ],
)
def test_an_xid_raises_what_its_class_says(code: int, condition: Condition):
    """The condition began with the XID, and it is raised on a GPU that does not answer too."""
    pending = (PendingXid(code, AT - 30),)
    for up in (True, False):
        verdict = judge_condition(condition, replace(inputs(up=up), xids=pending))
        assert verdict.state is True
        assert verdict.signs[0].at == AT - 30


@pytest.mark.parametrize(
    "code", [code for code in RECOVERY_SINCE if explain(code).kind in ("reset", "reboot")]
)
def test_the_answer_of_the_driver_counts_for_the_xids_that_it_covers(code: int):
    """If it was read after the XID, from a driver whose action covers the code, and is not a first step."""
    condition: Condition = "needs_reset" if explain(code).kind == "reset" else "needs_reboot"
    now = replace(inputs(), xids=(PendingXid(code, AT - 30),), driver_branch=580)
    assert state(condition, now) is False
    assert state(condition, replace(now, driver_branch=None)) is False
    for undecided in (
        replace(now, driver_branch=RECOVERY_SINCE[code] - 1),
        replace(now, xids=(PendingXid(code, AT),)),
        replace(now, reading=reading(slow_read_at=AT - 30)),
        replace(now, reading=reading(up=False)),
        replace(now, reading=reading(recovery_action=None)),
        replace(now, reading=reading(recovery_action="drain_p2p")),
    ):
        assert state(condition, undecided) is True


def test_faults_of_applications_raise_nothing():
    now = replace(inputs(), xids=(PendingXid(13, AT), PendingXid(63, AT), PendingXid(154, AT)))
    assert [name for name in TABLE if judge_condition(name, now).state] == []


def test_memory_errors_and_failed_repairs():
    errors = inputs(ecc=Ecc(errors={VOLATILE: 2}))
    assert (
        judge_condition("uncorrected_memory_errors", errors)
        .signs[0]
        .cause.startswith("2 uncorrected memory errors")
    )
    assert state("uncorrected_memory_errors", inputs()) is False
    assert state("uncorrected_memory_errors", inputs(ecc=Ecc(enabled=True))) is None
    assert state("replace_board", inputs(repairs=Repairs(row_remap_failure=True))) is True
    assert state("replace_board", inputs(repairs=None)) is None


def test_a_repair_that_is_not_pending_needs_nothing():
    done = replace(NO_REPAIR, channel_repair_pending=False, tpc_repair_pending=False)
    assert state("needs_reset", inputs(repairs=done)) is False


@pytest.mark.parametrize("problem", get_args(FabricProblem))
def test_problems_of_a_fabric_degrade_its_links_if_they_last(problem: FabricProblem):
    """Those that pass by themselves or may be intended do not, and all edges are known."""
    for holds in (True, False):
        now = inputs(fabric=Fabric(state="completed", problems={problem: holds}))
        verdict = judge_condition("link_degraded", now)
        known = problem in FABRIC_CAUSES
        assert verdict.state is (holds if known else None)
        assert [sign.cause for sign in verdict.signs] == ([FABRIC_CAUSES[problem]] if known and holds else [])


def test_an_incorrect_configuration_is_named_in_the_cause():
    problems: dict[FabricProblem, bool] = {"incorrect_configuration": True}
    fabric = Fabric(state="completed", problems=problems, misconfiguration="insufficient_nvlinks")
    [sign] = judge_condition("link_degraded", inputs(fabric=fabric)).signs
    assert sign.cause == "its NVLink fabric is configured incorrectly: insufficient nvlinks"


@pytest.mark.parametrize(
    ("withheld", "links", "expected"),
    [("Timeout", 18, None), ("not supported", 18, False), ("Timeout", 0, False)],
)
def test_a_fabric_that_was_not_read_is_unknown(withheld: str, links: int, expected: bool | None):
    """On a GPU that may have one: with NVLinks, and a driver that did not refuse."""
    now = inputs(nvlink=Nvlink(links=links), withheld={"nvlink": withheld})
    assert state("link_degraded", replace(now, links=(Sign(False),))) is expected


def test_a_gpu_of_amd_has_no_condition_that_its_driver_cannot_report():
    """It can be lost, and have memory errors or a narrow link."""
    amd = inputs(
        watched=False,
        identity=GpuIdentity(uuid="GPU-b", index=0, vendor="amd"),
        repairs=None,
        recovery_action=None,
    )
    known = {name for name in TABLE if judge_condition(name, amd).state is not None}
    assert known == {"lost", "uncorrected_memory_errors"}


OPTIONAL = st.none() | st.booleans()
ANY_INPUTS = st.builds(
    Inputs,
    vendor=st.just("nvidia"),
    reading=st.none()
    | st.builds(
        reading,
        up=st.booleans(),
        recovery_action=st.none() | st.sampled_from(RECOVERY_ACTIONS),
        repairs=st.none()
        | st.builds(
            Repairs,
            row_remap_pending=OPTIONAL,
            row_remap_failure=OPTIONAL,
            retired_pages_pending=OPTIONAL,
            channel_repair_pending=OPTIONAL,
            tpc_repair_pending=OPTIONAL,
        ),
        fabric=st.none()
        | st.builds(
            Fabric, problems=st.dictionaries(st.sampled_from(get_args(FabricProblem)), st.booleans())
        ),
        ecc=st.none() | st.builds(Ecc, errors=st.dictionaries(st.just(VOLATILE), st.integers(0, 3))),
        mig_enabled=OPTIONAL,
        withheld=st.dictionaries(st.just("repairs"), st.sampled_from(["not supported", "Timeout"])),
    ),
    released=st.sampled_from(["", "it is asked for"]),
    watched=st.booleans(),
    xids=st.lists(
        st.builds(PendingXid, st.sampled_from([13, 48, 62, 79, 94, 151]), st.just(AT)), max_size=3
    ).map(tuple),
    reset_required=st.booleans(),
    throttled=st.builds(Sign, OPTIONAL),
    links=st.lists(st.builds(Sign, OPTIONAL), max_size=3).map(tuple),
)


def _says(now: Inputs, condition: Condition) -> bool:
    """Return whether an input says so, written down apart from the rules."""
    kinds = {explain(xid.code).kind for xid in now.xids}
    values = now.reading if now.reading is not None and now.reading.up else None
    repairs = (values and values.repairs) or Repairs()
    fabric = (values and values.fabric) or Fabric()
    said = {
        "lost": not values and not now.released,
        "needs_reset": now.reset_required
        or "reset" in kinds
        or bool(values and values.recovery_action in RESETS)
        or bool(repairs.row_remap_pending or repairs.retired_pages_pending)
        or bool(repairs.channel_repair_pending or repairs.tpc_repair_pending),
        "needs_reboot": "reboot" in kinds or bool(values and values.recovery_action in REBOOTS),
        "replace_board": bool(repairs.row_remap_failure),
        "uncorrected_memory_errors": any(xid.code in UNCORRECTED_XIDS for xid in now.xids)
        or bool(values and values.ecc and values.ecc.errors.get(VOLATILE)),
        "throttled_by_heat_or_power": bool(now.throttled.raises),
        "link_degraded": any(link.raises for link in now.links)
        or any(fabric.problems.get(problem) for problem in FABRIC_CAUSES),
        "driver_released": bool(now.released),
    }
    return said[condition]


@given(ANY_INPUTS, st.sampled_from(get_args(Condition)))
def test_a_raised_condition_has_an_input_that_says_so(now: Inputs, condition: Condition):
    """Its cause is not empty, and what is not raised has no raising input, known or not."""
    verdict = judge_condition(condition, now)

    assert not verdict.state or _says(now, condition)
    assert bool(verdict.state) == bool(verdict.signs)
    assert all(sign.raises for sign in verdict.signs)


@given(ANY_INPUTS, st.sampled_from(get_args(Condition)))
def test_a_gpu_without_readings_has_no_condition_that_is_known_to_be_absent(
    now: Inputs, condition: Condition
):
    """Unknown is not zero: all but the release of the driver needs a reading."""
    silent = replace(now, reading=None, throttled=Sign(None), links=())
    assert judge_condition(condition, silent).state is not False or condition == "driver_released"
