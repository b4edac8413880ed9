"""MIG profiles: asked of the driver once for each model, also without MIG mode; else those of the table."""

import json
import re
from collections.abc import Mapping

import pytest

from exporter.demo.scenario.catalog import parse
from exporter.model.mig_profiles import LISTINGS, MigProfile, MigProfiles, listed_profiles
from tests.core.hardware.making import MIB, NODE, Clock, Driver, gpu, instance

REPORT = "nvmlDeviceGetGpuInstanceProfileInfoV"
H100 = {"model": "NVIDIA H100 NVL", "memory_total": "95830 MiB", "architecture": 9}
SIZES = [
    {"name": "1g.4gb", "memory_bytes": "3712 MiB", "multiprocessors": 14, "instances": 4},
    {"name": "1g.2gb", "memory_bytes": "1856 MiB", "multiprocessors": 13, "instances": 7},
    {"name": "1g.2gb+me", "memory_bytes": "1856 MiB", "multiprocessors": 12, "instances": 1},
    {"name": "1g.2gb+gfx", "memory_bytes": "1728 MiB", "multiprocessors": 11, "instances": 3},
    {"name": "1g.2gb-me", "memory_bytes": "1856 MiB", "multiprocessors": 10, "instances": 2},
    {"name": "2g.4gb+me.all", "memory_bytes": "3648 MiB", "multiprocessors": 28, "instances": 1},
    {"name": "7g.16gb", "memory_bytes": "15360 MiB", "multiprocessors": 98, "instances": 1},
]


def board(name="a", *instances, **changes):
    """Return a GPU with a MIG mode, disabled unless it has instances, whose driver knows these profiles."""
    mode = {"enabled": bool(instances), "instances": list(instances), "profiles": SIZES}
    return gpu(name, **{"mig": mode} | changes)


def by_name(reported: MigProfiles | None) -> Mapping[str, MigProfile]:
    """Return the profiles by name."""
    assert reported is not None
    return {profile.name: profile for profile in reported.profiles}


def profiles(driver: Driver) -> MigProfiles | None:
    """Return the profiles of the first GPU in a first sweep."""
    return one(driver)


def one(driver: Driver) -> MigProfiles | None:
    """Sweep and return the profiles of the first GPU."""
    return next(iter(driver.sweep().values())).mig_profiles


@pytest.mark.parametrize("instances", [(), (instance("small", gi=7, start=6),)])
def test_the_driver_reports_all_profiles_with_and_without_mig_mode(instances):
    reported = profiles(Driver(board("a", *instances)))
    assert reported.source == "driver"
    assert by_name(reported) == {
        size["name"]: MigProfile(
            name=size["name"],
            memory=int(size["memory_bytes"].removesuffix(" MiB")) * MIB,
            multiprocessors=size["multiprocessors"],
            instances=size["instances"],
        )
        for size in SIZES
    }


def test_the_driver_is_asked_once_per_model():
    """Profiles that a board lacks are neither failures nor unsupported calls."""
    driver = Driver(board("a"), board("b"))
    first, second = driver.sweep().values()
    assert first.mig_profiles == second.mig_profiles
    asked = driver.asked(REPORT, "GPU-a")
    assert asked
    assert driver.asked(REPORT, "GPU-b") == 0
    driver.sweep()
    assert driver.asked(REPORT, "GPU-a") == asked
    assert not driver.errors()
    assert "nvmlDeviceGetGpuInstanceProfileInfo" not in first.unsupported


def test_a_changed_mig_mode_asks_again_and_a_new_partition_does_not():
    driver = Driver(board("a"))
    one(driver)
    asked = driver.asked(REPORT, "GPU-a")
    driver.become(board("a", instance("small", gi=7, start=6)))
    assert by_name(one(driver))
    again = driver.asked(REPORT, "GPU-a")
    assert again == 2 * asked
    driver.become(board("a", instance("other", gi=8, start=5)))
    one(driver)
    assert driver.asked(REPORT, "GPU-a") == again


def test_a_lost_gpu_keeps_its_profiles():
    driver = Driver(board("a"))
    before = one(driver)
    driver.fail("GPU_IS_LOST", device="GPU-a")
    lost = driver.read()
    assert (lost.up, lost.mig_profiles) == (False, before)


def test_without_a_mig_mode_there_are_no_profiles():
    driver = Driver(gpu("a", **H100))
    assert profiles(driver) is None
    assert driver.asked(REPORT, "GPU-a") == 0


def test_a_driver_without_the_call_leaves_the_table():
    """By model and memory."""
    off = {"mig": {"enabled": False}}
    old = {"missing": (REPORT,)}
    reported = profiles(Driver(gpu("a", **H100 | off), **old))
    assert reported.source == "table"
    assert by_name(reported)["1g.12gb"] == MigProfile(
        name="1g.12gb", memory=11008 * MIB, multiprocessors=16, instances=7
    )
    assert profiles(Driver(gpu("a", **H100 | off | {"memory_total": "80 GiB"}), **old)) is None
    assert profiles(Driver(gpu("a", **off), **old)) is None


def test_a_refusal_is_counted_once(clock: Clock):
    driver = Driver(gpu("a", **H100 | {"mig": {"enabled": False}}))
    driver.configure(clock=clock.monotonic)
    driver.fail("NO_PERMISSION", REPORT)
    assert one(driver).source == "table"
    counted = sum(driver.errors().values())
    for _ in range(3):
        clock.now += 100
        assert one(driver).source == "table"
    assert sum(driver.errors().values()) == counted


def test_a_failing_driver_is_asked_again_with_the_slow_readings(clock: Clock):
    driver = Driver(gpu("a", **H100 | {"mig": {"enabled": False, "profiles": SIZES}}))
    driver.configure(clock=clock.monotonic)
    driver.fail("UNKNOWN", REPORT)
    assert one(driver).source == "table"
    driver.recover()
    clock.now += 100
    assert one(driver).source == "driver"


def test_after_a_failure_another_gpu_of_the_model_is_asked():
    driver = Driver(*(gpu(name, **H100 | {"mig": {"profiles": SIZES}}) for name in "ab"))
    driver.fail("UNKNOWN", REPORT, "GPU-a")
    first, second = driver.sweep().values()
    assert (first.mig_profiles.source, second.mig_profiles.source) == ("table", "driver")


def test_an_unreadable_mig_mode_keeps_known_profiles():
    driver = Driver(board("a"))
    before = one(driver)
    driver.fail("UNKNOWN", "nvmlDeviceGetMigMode")
    assert one(driver) == before
    assert driver.sweeper.close()
    assert one(driver) == before
    driver.recover()
    assert [one(driver), one(driver)] == [before, before]


@pytest.mark.parametrize("name", [b"", b"MIG", b"MIG \xff\xfe", b"1g.2gb", b"MIG 1g.2gb\n", b"x" * 96])
def test_an_invalid_name_costs_that_profile(name):
    driver = Driver(board("a"))
    real = getattr(driver.library, REPORT)

    def report(device, profile, reference):
        code = real(device, profile, reference)
        if profile == 0:
            reference._obj.name = name
        return code

    setattr(driver.library, REPORT, report)
    reading = driver.read()
    assert reading.up
    assert by_name(reading.mig_profiles).keys() == {size["name"] for size in SIZES} - {"1g.2gb"}
    assert not driver.errors()


@pytest.mark.parametrize("size", [0, 2**64 - 1])
def test_an_implausible_size_is_unknown(size):
    driver = Driver(board("a"))
    real = getattr(driver.library, REPORT)

    def report(device, profile, reference):
        code = real(device, profile, reference)
        answer = reference._obj
        answer.memorySizeMB, answer.multiprocessorCount, answer.instanceCount = size, 2**32 - 1, 0
        return code

    setattr(driver.library, REPORT, report)
    assert by_name(profiles(driver))["1g.2gb"] == MigProfile(name="1g.2gb")


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: f"{listing.models[0]}-{listing.gibibytes}")
def test_listings_of_the_table_are_plausible(listing):
    """A profile has slightly less memory than its name says, and its instances fit the GPU."""
    rows = LISTINGS[listing]
    for name, mebibytes, multiprocessors, instances in rows:
        named = int(re.fullmatch(r"\dg\.(\d+)gb(?:[+-][a-z.]+)?", name)[1])
        assert 0.8 * named < mebibytes / 1024 < named
        assert mebibytes % 64 == 0
        assert instances * mebibytes <= listing.gibibytes * 1024
        assert 0 < multiprocessors <= 192
    assert len({name for name, *_ in rows}) == len(rows)
    assert listing.source.startswith("https://")


@pytest.mark.parametrize(
    ("model", "gibibytes", "profile", "size", "multiprocessors"),
    [
        ("NVIDIA H100 NVL", 93.58, "1g.12gb", 10.75, 16),
        ("NVIDIA H100 NVL", 93.58, "1g.24gb", 21.625, 26),
        ("NVIDIA H100 NVL", 93.58, "2g.24gb", 21.625, 32),
        ("NVIDIA GB200", 188.4, "1g.24gb", 20.0, 18),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.59, "1g.24gb", 23.625, 46),
    ],
)
def test_measured_sizes_are_in_the_table(model, gibibytes, profile, size, multiprocessors):
    listed = by_name(listed_profiles(model, round(gibibytes * 2**30)))[profile]
    assert (listed.memory, listed.multiprocessors) == (size * 2**30, multiprocessors)


def test_a_scenario_names_its_profiles_or_has_those_of_the_model():
    document = {"name": "t", "node": NODE, "gpus": [board("a"), gpu("b", **H100 | {"mig": {}})]}
    named, default = parse(json.dumps(document)).gpus
    assert [size.name for size in named.mig.profiles] == [size["name"] for size in SIZES]
    assert default.mig.profiles == ()
    reported = profiles(Driver(gpu("b", **H100 | {"mig": {}})))
    assert reported.source == "driver"
    assert by_name(reported) == by_name(listed_profiles("NVIDIA H100 NVL", 95830 * MIB))
