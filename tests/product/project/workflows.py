"""Reads the workflows of GitHub."""

from pathlib import Path
from typing import Any

import yaml

from tests.tools import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(path: Path) -> dict[str, Any]:
    """Return a workflow."""
    # YAML 1.1 reads the key "on" as a truth value.
    return {("on" if key is True else key): value for key, value in yaml.safe_load(path.read_text()).items()}


def steps() -> list[dict[str, Any]]:
    """Return the steps of all jobs."""
    jobs = [job for path in WORKFLOWS for job in workflow(path)["jobs"].values()]
    return [each for job in jobs for each in job.get("steps", ())]


def step(name: str) -> dict[str, Any]:
    """Return the one step of that name."""
    (only_step,) = [each for each in steps() if each.get("name") == name]
    return only_step
