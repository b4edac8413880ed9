"""The command that runs the tests beside busy loops: it goes on where it stopped, and adds its parts up."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Stands in for scripts/run-tests: notes its options, and writes a report. It ends with an error at the part
# of folder b until there is a file "mended", and a test of folder c fails.
RUN_TESTS = """#!/usr/bin/env bash
echo "$*" >>calls
if [[ $* == *tests/b* && ! -e .git/mended ]]; then exit 2; fi
failure=
[[ $* == *tests/c* ]] && failure="<failure/>"
report=$(sed 's/.*--junit-xml=\\([^ ]*\\).*/\\1/' <<<"$*")
case="<testcase classname='t' name='one'>$failure</testcase>"
echo "<testsuites><testsuite tests='3' skipped='1' time='2.5'>$case</testsuite></testsuites>" >"$report"
[[ ! $failure ]]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a repository with the command and three folders of tests."""
    for folder in "abc":
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_x.py").touch()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test-under-load", tmp_path / "scripts")
    (tmp_path / "scripts/run-tests").write_text(RUN_TESTS)
    (tmp_path / "scripts/run-tests").chmod(0o755)
    (tmp_path / ".gitignore").write_text("/build\n/calls\n")
    _git(tmp_path, "init", "-q", ".")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-qm", "1")
    return tmp_path


def _git(folder: Path, *words: str) -> None:
    names = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = os.environ | names | {"GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *words], cwd=folder, check=True, env=environment)


def _run(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, tree / "scripts/test-under-load", "--loops=1", "--runs=2"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def _parts(tree: Path) -> list[str]:
    calls = (tree / "calls").read_text().splitlines()
    return [call.partition(" --junit-xml")[0] for call in calls]


def test_it_goes_on_where_it_stopped_and_adds_its_parts_up(tree: Path) -> None:
    quick = ["-m not slow and not tools"] * 2

    stopped = _run(tree)
    assert stopped.returncode == 1
    assert "part all-b has not ended (status 2)" in stopped.stderr
    assert _parts(tree) == [*quick, "tests/a", "tests/b"]

    (tree / ".git/mended").touch()
    ended = _run(tree)
    assert _parts(tree) == [*quick, "tests/a", "tests/b", "tests/b", "tests/c"]
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-2:] == [
        "in all                   15 tests    1 failed    5 skipped     12 s",
        "FAILED t::one",
    ]


def test_changes_that_are_not_committed_are_refused(tree: Path) -> None:
    """The reports are kept by commit."""
    (tree / "tests/a/test_x.py").write_text("# changed")

    done = _run(tree)

    assert done.returncode == 1
    assert "commit them first" in done.stderr
    assert "tests/a/test_x.py" in done.stderr
