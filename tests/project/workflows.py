"""The workflows of GitHub, as their files say."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(path: Path) -> dict[str, Any]:
    """Read a workflow."""
    # The key "on" is a truth value to YAML 1.1.
    return {("on" if key is True else key): value for key, value in yaml.safe_load(path.read_text()).items()}


def steps() -> list[dict[str, Any]]:
    """Give the steps of all jobs."""
    jobs = [job for path in WORKFLOWS for job in workflow(path)["jobs"].values()]
    return [each for job in jobs for each in job.get("steps", ())]


def step(name: str) -> dict[str, Any]:
    """Give the one step of that name."""
    (found,) = [each for each in steps() if each.get("name") == name]
    return found
