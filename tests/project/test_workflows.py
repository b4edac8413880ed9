"""The workflows are sound, may do what they need, and their commands do what they are for."""

import os
import re
import shutil
import subprocess

import pytest

from tests.deploy.tools import output, tool
from tests.project.workflows import ROOT, WORKFLOWS, step, steps, workflow

# What each job may do beyond reading the sources.
RIGHTS = {
    "files": {"id-token", "attestations"},
    "image": {"packages", "id-token", "attestations"},
    "chart": {"packages"},
    "release": {"contents"},
    "pypi": {"id-token"},
}


def test_actionlint_has_nothing_to_object_to() -> None:
    """Names, expressions, types and shell commands of the workflows are right."""
    assert output("actionlint", *WORKFLOWS) == ""


def test_actionlint_notices_a_step_that_does_not_exist(tmp_path) -> None:
    """A reference to an output of a step that is not there is found."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[-1].read_text().replace("steps.build.outputs", "steps.biuld.outputs"))

    done = subprocess.run(
        [tool("actionlint"), wrong], capture_output=True, text=True, check=False, timeout=60
    )

    assert "biuld" in done.stdout


def test_actions_are_pinned_by_commit() -> None:
    """Each action of others is named by a whole commit, with its release beside it."""
    used = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    theirs = [line for line in used if "uses: ./" not in line]

    assert len(theirs) > 10
    assert [
        line for line in theirs if not re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
    ] == []


def test_one_action_is_one_commit() -> None:
    """An action that is used twice is the same one both times."""
    used = {each["uses"] for each in steps() if "uses" in each}

    assert len(used) == len({action.partition("@")[0] for action in used})


def test_jobs_have_the_rights_that_they_need_and_no_more() -> None:
    """Nothing is allowed by default, and what a job may write is written down here."""
    for path in WORKFLOWS:
        read = workflow(path)
        assert read["permissions"] == {}
        for name, job in read["jobs"].items():
            writes = {right for right, level in job["permissions"].items() if level == "write"}
            assert writes == (RIGHTS.get(name, set()) if path.stem == "release" else set()), name


def test_no_value_from_outside_is_put_into_a_command() -> None:
    """Commands take what GitHub tells from variables: a name of a tag is no part of a script."""
    assert [each["run"] for each in steps() if "${{" in each.get("run", "")] == []


def test_ci_runs_as_root() -> None:
    """Nothing is skipped in CI, and images are built and a systemd is booted by root only."""
    (run,) = [each["run"] for each in steps() if ".ci/run" in each.get("run", "")]

    assert run.startswith("sudo env ")


def test_scripts_that_are_called_exist() -> None:
    """Each script of this tree that a step runs can be run."""
    called = {
        name for each in steps() for name in re.findall(r"(?:scripts|\.ci)/[\w-]+", each.get("run", ""))
    }

    assert called >= {".ci/run", "scripts/set-version", "scripts/build-release", "scripts/release-notes"}
    assert [name for name in called if not os.access(ROOT / name, os.X_OK)] == []


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    """Whatever writes to a registry or makes a release waits for the tests and the check of the version."""
    jobs = workflow(ROOT / ".github/workflows/release.yml")["jobs"]

    def waits_for(name: str) -> set[str]:
        direct = jobs[name].get("needs", [])
        return {*direct, *(each for other in direct for each in waits_for(other))}

    assert all({"version", "tests"} <= waits_for(name) for name in RIGHTS)
    assert waits_for("release") >= {"files", "image", "chart"}
    assert jobs["tests"]["uses"] == "./.github/workflows/ci.yml"


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["v97.8.7", "v97.8.6", "main"])
def test_a_tag_that_is_not_the_version_ends_the_release(tag, tmp_path) -> None:
    """The first step, run as it stands, takes the tag of the version and stops at any other."""
    for name in ("scripts", "deploy", "docs"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png", "images", "site")
        )
    for name in ("CHANGELOG.md", "README.md", "Dockerfile", "pyproject.toml", "exporter/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run([tmp_path / "scripts/set-version", "97.8.7"], check=True, capture_output=True, timeout=30)
    told = {"TAG": tag, "GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_REPOSITORY_OWNER": "Acme"}

    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step("The tag is the version that stands everywhere")["run"]],
        cwd=tmp_path,
        env=os.environ | told,
        capture_output=True,
        check=False,
        timeout=30,
    )

    if tag == "v97.8.7":
        lines = (tmp_path / "output").read_text().splitlines()
        assert lines == ["version=97.8.7", "image=ghcr.io/acme/gpuslice-exporter"]
    else:
        assert done.returncode != 0
        assert not (tmp_path / "output").exists()


def test_a_tag_beside_the_main_branch_ends_the_release(tmp_path) -> None:
    """The step, run as it stands, passes on a commit of the main branch, and fails on one after it."""

    def bash(commands: str) -> int:
        own = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_CONFIG_GLOBAL": "/dev/null"}
        own |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a"}
        words = ["bash", "-eo", "pipefail", "-c", commands]
        done = subprocess.run(
            words, cwd=tmp_path, env=os.environ | own, capture_output=True, check=False, timeout=30
        )
        return done.returncode

    script = step("The commit is one of the main branch")["run"]
    assert bash("git init -q . && git commit -q --allow-empty -m 1") == 0
    assert bash("git update-ref refs/remotes/origin/main HEAD") == 0
    reviewed = bash(script)
    assert bash("git commit -q --allow-empty -m 2") == 0

    assert (reviewed, bash(script)) == (0, 1)
