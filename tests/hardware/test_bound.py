"""Which PCI devices the driver is bound to, from a sysfs like a node's."""

from pathlib import Path

import pytest

from exporter.nvml.topology import DRIVER, BoundDevices, normalize_pci


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """Give a sysfs in which the driver is bound to one GPU."""
    (tmp_path / DRIVER / "0000:07:00.0").mkdir(parents=True)
    for name in ("bind", "module", "new_id", "uevent"):
        (tmp_path / DRIVER / name).touch()
    return tmp_path


def test_nothing_has_changed_while_the_same_devices_are_bound(sys_root: Path):
    """The driver's own files in the folder are no devices."""
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER / "remove_id").touch()
    assert not bound.changed()


@pytest.mark.parametrize("address", ["0000:0f:00.0", "00000001:07:00.0"])
def test_a_gpu_that_is_plugged_in_is_a_change_until_it_is_noted(sys_root: Path, address: str):
    """Another device is noticed at each look, and no more once the library was opened with it."""
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER / address).mkdir()
    assert bound.changed()
    assert bound.changed()
    bound.note(bound.now())
    assert not bound.changed()


def test_a_gpu_that_is_unplugged_is_a_change(sys_root: Path):
    """A device that is no longer bound is noticed."""
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER / "0000:07:00.0").rmdir()
    assert bound.changed()


def test_what_is_bound_no_more_is_told_with_the_next_note(sys_root: Path):
    """It is spelled without leading zeros, as both sysfs and NVML can be, and told once."""
    bound = BoundDevices(sys_root)
    assert bound.note(bound.now()) == set()
    (sys_root / DRIVER / "0000:07:00.0").rmdir()
    (sys_root / DRIVER / "0000:0f:00.0").mkdir()
    assert bound.note(bound.now()) == {normalize_pci("00000000:07:00.0")}
    assert bound.note(bound.now()) == set()


def test_what_cannot_be_told_leaves_the_note_as_it_was(sys_root: Path):
    """What was unplugged while the driver was away is told when it is back."""
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER).rename(sys_root / "away")
    assert bound.note(bound.now()) == set()
    (sys_root / "away").rename(sys_root / DRIVER)
    (sys_root / DRIVER / "0000:07:00.0").rmdir()
    assert bound.note(bound.now()) == {normalize_pci("0000:07:00.0")}


def test_before_anything_was_noted_nothing_has_changed(sys_root: Path):
    """A library that was never opened is not opened anew."""
    assert not BoundDevices(sys_root).changed()


@pytest.mark.parametrize("root", [None, Path("/nowhere")])
def test_without_a_sysfs_no_change_is_seen(root: Path | None):
    """What cannot be read is no reason to open the driver anew."""
    bound = BoundDevices(root)
    bound.note(bound.now())
    assert not bound.changed()


def test_a_driver_that_is_being_exchanged_is_no_change(sys_root: Path):
    """While the folder is away the driver's own errors tell more."""
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER).rename(sys_root / "away")
    assert not bound.changed()
