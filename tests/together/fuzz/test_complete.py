"""Every decoder has a target: a new module that reads outside text must be fuzzed."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from exporter.sharing import SYSTEMS
from tests.together.fuzz.every import TARGETS
from tests.together.fuzz.target import Target

# Packages whose modules read outside text, unless they are in NO_DECODER.
PACKAGES = (
    "exporter.dcgm_scrape",
    "exporter.nvml",
    "exporter.amd",
    "exporter.kubernetes",
    "exporter.sharing",
    "exporter.translate",
    "exporter.web.kit.auth",
    "exporter.workloads",
    "podresources",
)
# Modules that decode, in other packages.
MODULES = frozenset(
    {
        "exporter.documents",
        "exporter.demo.scenario.catalog",
        "exporter.exposition.negotiation",
        "exporter.fleet.prometheus",
        "exporter.fleet.rules",
        "exporter.model.kubelet",
        "exporter.waiting.cel",
        "exporter.waiting.cel_syntax",
        "exporter.model.quantity",
        "exporter.config",
        "exporter.config.parse",
        "exporter.web.node.parameters",
        "exporter.web.node.pages.holder_filters",
    }
)
CALLS = "makes calls; other modules decode the answers"
JOIN = "joins decoded values; runs below every target of a system"
NO_DECODER = {
    "exporter.amd.amdsmi": "calls AMD's library, which the fake node does not have",
    "exporter.nvml.driver.library": CALLS,
    "exporter.nvml.bound_devices": "compares the names in a folder",
    "exporter.nvml.driver.records": "keeps errors",
    "exporter.nvml.readings.paths": "names fields of the model",
    "exporter.nvml.source": CALLS,
    "exporter.kubernetes.access": "reads the pod's own service account, which the kubelet writes",
    "exporter.kubernetes.follower": CALLS,
    "exporter.kubernetes.whole_cluster": CALLS,
    "exporter.translate.findings": "reports what others find",
    "exporter.sharing.dra.parts": JOIN,
    "exporter.sharing.dra.requests": JOIN,
    "exporter.sharing.hami.cache_files": JOIN,
    "exporter.sharing.base.holdings": JOIN,
    "exporter.sharing.base.view": JOIN,
    "exporter.sharing.base.resolve": JOIN,
    "exporter.web.kit.auth.access": "hands files to OpenSSL",
    "podresources.channel": CALLS,
    "podresources.client": CALLS,
}


def _modules() -> Iterator[str]:
    for package in map(importlib.import_module, PACKAGES):
        prefix = f"{package.__name__}."
        found = pkgutil.walk_packages(package.__path__, prefix)
        yield from (each.name for each in found if not each.ispkg)
    yield from MODULES


COVERED = frozenset(name for target in TARGETS for name in target.covers)


def test_a_module_that_decodes_has_a_target() -> None:
    """A module is either covered by a target of tests/together/fuzz, or in NO_DECODER with a reason."""
    assert [name for name in _modules() if (name in COVERED) == (name in NO_DECODER)] == []


def test_the_lists_name_existing_modules() -> None:
    assert NO_DECODER.keys() <= set(_modules())
    assert [name for name in COVERED if importlib.util.find_spec(name) is None] == []


def test_targets_have_different_names_and_each_system_has_one() -> None:
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("system-") for name in names) == len(SYSTEMS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_runs_what_it_covers(target: Target) -> None:
    """Its seeds enter functions of the modules that it names."""
    entered = _entered_by(target)

    assert entered >= set(target.covers), f"not entered: {sorted(set(target.covers) - entered)}"


def _entered_by(target: Target) -> frozenset[str]:
    """Return the modules whose functions are called by decoding the seeds."""
    seeds = target.seeds()
    entered: set[str] = set()

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        for seed in seeds:
            try:
                target.decode(seed)
            except target.refuses:
                continue
    finally:
        sys.setprofile(before)
    return frozenset(entered)
