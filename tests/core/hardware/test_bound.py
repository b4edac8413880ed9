"""Which PCI devices the driver is bound to, from a sysfs like a node's."""

from pathlib import Path

import pytest

from exporter.nvml.bound_devices import DRIVER, BoundDevices, normalize_pci


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """Return a sysfs in which the driver is bound to one GPU."""
    (tmp_path / DRIVER / "0000:07:00.0").mkdir(parents=True)
    for name in ("bind", "module", "new_id", "uevent"):
        (tmp_path / DRIVER / name).touch()
    return tmp_path


@pytest.mark.parametrize("address", ["0000:0f:00.0", "00000001:07:00.0"])
def test_a_new_device_is_a_change_until_it_is_noted(sys_root: Path, address: str):
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER / "remove_id").touch()
    assert not bound.changed()
    (sys_root / DRIVER / address).mkdir()
    assert [bound.changed(), bound.changed()] == [True, True]
    bound.note(bound.now())
    assert not bound.changed()


def test_the_next_note_returns_removed_devices_once(sys_root: Path):
    """Addresses are normalized: sysfs and NVML write leading zeros differently."""
    bound = BoundDevices(sys_root)
    assert bound.note(bound.now()) == set()
    (sys_root / DRIVER / "0000:07:00.0").rmdir()
    (sys_root / DRIVER / "0000:0f:00.0").mkdir()
    assert bound.changed()
    assert bound.note(bound.now()) == {normalize_pci("00000000:07:00.0")}
    assert bound.note(bound.now()) == set()


def test_a_driver_that_is_being_replaced_is_no_change(sys_root: Path):
    """A device removed meanwhile is returned when the driver is back."""
    bound = BoundDevices(sys_root)
    bound.note(bound.now())
    (sys_root / DRIVER).rename(sys_root / "away")
    assert not bound.changed()
    assert bound.note(bound.now()) == set()
    (sys_root / "away").rename(sys_root / DRIVER)
    (sys_root / DRIVER / "0000:07:00.0").rmdir()
    assert bound.note(bound.now()) == {normalize_pci("0000:07:00.0")}


def test_nothing_has_changed_before_the_first_note(sys_root: Path):
    assert not BoundDevices(sys_root).changed()


@pytest.mark.parametrize("root", [None, Path("/nowhere")])
def test_an_unreadable_sysfs_is_no_change(root: Path | None):
    bound = BoundDevices(root)
    bound.note(bound.now())
    assert not bound.changed()
