"""The workflows are valid and have the rights that they need, and their commands work."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.product.deploy.tools import output
from tests.product.project.test_version import NEXT, copy_of_the_tree
from tests.product.project.workflows import ROOT, WORKFLOWS, step, steps, workflow

# The rights of each job beyond reading the sources.
RIGHTS = {
    "files": {"id-token", "attestations"},
    "image": {"packages", "id-token", "attestations"},
    "chart": {"packages"},
    "release": {"contents"},
    "pypi": {"id-token"},
}


@pytest.mark.tools
def test_actionlint_reports_nothing() -> None:
    """Of names, expressions, types and shell commands."""
    assert output("actionlint", *WORKFLOWS) == ""


def test_actions_are_pinned_by_commit() -> None:
    """Each action of others is named by a whole commit, followed by its release."""
    used = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    of_others = [line for line in used if "uses: ./" not in line]
    pinned = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")

    assert len(of_others) > 10
    assert [line for line in of_others if not pinned.search(line)] == []


def test_an_action_has_the_same_commit_everywhere() -> None:
    used = {each["uses"] for each in steps() if "uses" in each}

    assert len(used) == len({action.partition("@")[0] for action in used})


def test_jobs_have_the_rights_of_the_table() -> None:
    """And none by default."""
    for path in WORKFLOWS:
        read = workflow(path)
        assert read["permissions"] == {}
        for name, job in read["jobs"].items():
            writes = {right for right, level in job["permissions"].items() if level == "write"}
            assert writes == (RIGHTS.get(name, set()) if path.stem == "release" else set()), name


def test_no_value_from_outside_is_put_into_a_command() -> None:
    """Commands read values of GitHub from variables: the name of a tag must not become code."""
    assert [each["run"] for each in steps() if "${{" in each.get("run", "")] == []


def test_tests_run_as_root() -> None:
    """No test is skipped, and only root can build images and boot a systemd."""
    commands = [each["run"] for each in steps() if each.get("run", "").endswith((".ci/run", "make test-all"))]

    assert len(commands) == 2
    assert all(command.startswith("sudo env ") for command in commands)


def test_all_tests_run_each_night() -> None:
    """With nothing skipped, and also on demand and for a release."""
    nightly = workflow(ROOT / ".github/workflows/nightly.yml")

    assert nightly["on"].keys() == {"schedule", "workflow_dispatch", "workflow_call"}
    assert nightly["jobs"]["tests"]["steps"][-1]["run"].endswith(" CI=true make test-all")


def test_scripts_that_are_called_exist() -> None:
    called = {
        name for each in steps() for name in re.findall(r"(?:scripts|\.ci)/[\w-]+", each.get("run", ""))
    }

    assert called >= {".ci/run", "scripts/set-version", "scripts/build-release", "scripts/release-notes"}
    assert [name for name in called if not os.access(ROOT / name, os.X_OK)] == []


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    """Each job that can write waits for the tests and the check of the version."""
    jobs = workflow(ROOT / ".github/workflows/release.yml")["jobs"]

    def waits_for(name: str) -> set[str]:
        direct = jobs[name].get("needs", [])
        return {*direct, *(each for other in direct for each in waits_for(other))}

    assert all({"version", "tests"} <= waits_for(name) for name in RIGHTS)
    assert waits_for("release") >= {"files", "image", "chart"}
    assert jobs["tests"]["uses"] == "./.github/workflows/nightly.yml"


def bash(commands: str, folder: Path, **variables: str) -> int:
    """Return the exit code of the commands of a step, run as GitHub does."""
    words = ["bash", "-eo", "pipefail", "-c", commands]
    return subprocess.run(
        words, cwd=folder, env=os.environ | variables, capture_output=True, check=False
    ).returncode


def test_a_tag_that_is_not_the_version_ends_the_release(tmp_path) -> None:
    """The first step, run as it is, accepts only the tag of the version."""
    tree = copy_of_the_tree(tmp_path)
    subprocess.run([tree / "scripts/set-version", NEXT], check=True, capture_output=True)
    output_file = tree / "output"
    commands = step("The tag is the version that stands everywhere")["run"]
    variables = {"GITHUB_OUTPUT": str(output_file), "GITHUB_REPOSITORY_OWNER": "Acme"}

    for tag in ("v97.8.6", "main"):
        assert bash(commands, tree, TAG=tag, **variables) != 0
        assert not output_file.exists()
    assert bash(commands, tree, TAG=f"v{NEXT}", **variables) == 0
    assert output_file.read_text() == f"version={NEXT}\nimage=ghcr.io/acme/gpuslice-exporter\n"


def test_a_tag_outside_the_main_branch_ends_the_release(tmp_path) -> None:
    """The step, run as it is, accepts a commit of the main branch, and not the one after it."""
    own = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_CONFIG_GLOBAL": "/dev/null"}
    own |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a"}
    commands = step("The commit is one of the main branch")["run"]

    assert bash("git init -q . && git commit -q --allow-empty -m 1", tmp_path, **own) == 0
    assert bash("git update-ref refs/remotes/origin/main HEAD", tmp_path) == 0
    assert bash(commands, tmp_path) == 0
    assert bash("git commit -q --allow-empty -m 2", tmp_path, **own) == 0
    assert bash(commands, tmp_path) == 1
