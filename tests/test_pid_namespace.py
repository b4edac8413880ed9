"""Whose numbers pids are: on a node that is itself a container, they are not the machine's."""

from pathlib import Path

import pytest

from exporter.model.pid_namespace import MACHINE, counts_machine_pids, is_recorded


@pytest.mark.parametrize("link", [True, False])
def test_whose_numbers_a_proc_root_has(tmp_path: Path, link: bool):
    """The first namespace is known by its number, or by the kernel's own threads; a recorded tree is ours."""
    assert is_recorded(tmp_path)
    assert counts_machine_pids(tmp_path)
    namespace = tmp_path / "30" / "ns"
    namespace.mkdir(parents=True)
    (tmp_path / "self").symlink_to("30") if link else (tmp_path / "30").rename(tmp_path / "self")
    assert not is_recorded(tmp_path)
    assert not counts_machine_pids(tmp_path)
    (tmp_path / "2").mkdir()
    (tmp_path / "2/comm").write_text("kthreadd\n")
    assert counts_machine_pids(tmp_path)
    place = (tmp_path / "self").resolve() / "ns/pid"
    place.symlink_to("pid:[4026532999]")
    assert not counts_machine_pids(tmp_path)
    place.unlink()
    place.symlink_to(MACHINE)
    assert counts_machine_pids(tmp_path)


def test_a_tree_that_cannot_be_looked_into_is_no_recorded_one(tmp_path: Path):
    """Not to know is no proof that pids are ours; a path through a file leads nowhere at all."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert not is_recorded(loop)
    assert not counts_machine_pids(loop)
    (tmp_path / "file").touch()
    assert is_recorded(tmp_path / "file")
