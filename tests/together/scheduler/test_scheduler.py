"""Verdicts on waiting pods are those of a real scheduler.

Where all is judged, our message about a pod is the scheduler's, with the same numbers of nodes by the first
filter that fails, and a pod is bound to a node that it fits. Else it is never bound to a node of which we say
"no", and we never say that it fits where the scheduler does not place it. In most clusters, a way that would
help a pod is carried out, and the scheduler places it as we say. A thousand clusters:
``python -m tests.together.scheduler.run 1000``.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.together.scheduler.compare import Comparison
from tests.together.scheduler.control_plane import running
from tests.tools import ROOT, TOOLS

pytestmark = [pytest.mark.slow, pytest.mark.tools, pytest.mark.timeout(1800)]
CLUSTERS = 100
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
# The minor version of Kubernetes whose filters and messages ours are.
MINOR = 37


def programs() -> Path:
    """Return the folder of the newest Kubernetes that is installed, or that ``make cluster`` names."""
    chosen = os.environ.get("CLUSTER")
    folders = [ROOT / chosen] if chosen else list(TOOLS.glob("kubernetes-1.*"))
    versions = {
        tuple(map(int, re.findall("[0-9]+", each.name))): each
        for each in folders
        if all((each / name).exists() for name in PROGRAMS)
    }
    newest = max(versions, default=(0, 0))
    if newest < (1, MINOR):
        pytest.skip(f"no Kubernetes 1.{MINOR} is installed: `make cluster` builds it")
    return versions[newest]


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    """Run a control plane; it starts in ten seconds."""
    with running(programs()) as api, closing(Comparison(api)) as made:
        yield made


def test_verdicts_are_those_of_the_scheduler(comparison: Comparison) -> None:
    for seed in range(CLUSTERS):
        comparison.run(seed)
    tally = comparison.tally

    assert not tally.disagreements, tally.text()
    # What was compared is not nothing.
    assert tally.counts["pods bound"] > CLUSTERS, tally.text()
    assert tally.counts["pods with the scheduler's message, equal to ours"] > CLUSTERS, tally.text()
    assert {"NodeResourcesFit", "DynamicResources", "TaintToleration", "NodeAffinity"} <= set(tally.by_filter)
    ways = {name for name, placed in tally.ways.items() if placed}
    assert {"recut", "device", "ending", "idle for claims", "larger for claims"} <= ways, tally.text()
