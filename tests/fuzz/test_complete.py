"""No decoder is without a target: a module that is added where outside text is read has to be fuzzed, too."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from exporter.sharing import SYSTEMS
from tests.fuzz.every import TARGETS
from tests.fuzz.target import Target

# Packages all of whose modules read what others wrote, unless they are named below.
PACKAGES = (
    "exporter.dcgm_scrape",
    "exporter.nvml",
    "exporter.amd",
    "exporter.kubernetes",
    "exporter.prometheus",
    "exporter.sharing",
    "exporter.web.auth",
    "exporter.workloads",
    "podresources",
)
# Modules that decode, in packages that mostly do not.
MODULES = frozenset(
    {
        "exporter.demo.scenario.codec",
        "exporter.demo.scenario.catalog",
        "exporter.exposition.negotiation",
        "exporter.model.kubelet",
        "exporter.config",
        "exporter.config.parse",
        "exporter.web.parameters",
        "exporter.web.pages.holder_filters",
    }
)
CALLS = "asks, and hands what it gets to modules that decode it"
JOIN = "joins what others have decoded; runs below every target of a system"
NO_DECODER = {
    "exporter.amd.amdsmi": "calls AMD's library, which the fake node does not have",
    "exporter.nvml.driver.library": CALLS,
    "exporter.nvml.source": CALLS,
    "exporter.kubernetes.access": "reads the pod's own service account, which the kubelet writes",
    "exporter.kubernetes.follower": CALLS,
    "exporter.prometheus.past_queries": "lays decoded points on a grid",
    "exporter.prometheus.combined_history": CALLS,
    "exporter.sharing.hami.cache_files": JOIN,
    "exporter.sharing.base.holdings": JOIN,
    "exporter.sharing.base.view": JOIN,
    "exporter.sharing.base.resolve": JOIN,
    "exporter.web.auth.passwords": "counts requests",
    "exporter.web.auth.access": "hands files to OpenSSL",
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


@pytest.mark.parametrize("module", sorted(_modules()))
def test_a_module_that_decodes_has_a_target(module: str) -> None:
    """A module is covered by a target, or is said not to decode, and why; never both."""
    assert (module in COVERED) != (module in NO_DECODER), (
        f"{module} needs a Target in tests/fuzz that covers it, or a reason in NO_DECODER"
    )


def test_no_module_is_named_that_does_not_exist() -> None:
    """A module that was renamed or removed is not left standing in the lists."""
    known = set(_modules())

    assert known >= COVERED - {name for name in COVERED if importlib.util.find_spec(name)} | set(NO_DECODER)


def test_names_of_targets_tell_them_apart() -> None:
    """A target is asked for, and its findings are kept, by its name."""
    names = [target.name for target in TARGETS]

    assert len(set(names)) == len(names)
    assert sum(name.startswith("system-") for name in names) == len(SYSTEMS)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_runs_what_it_covers(target: Target) -> None:
    """To name a module is not enough: the valid inputs of the target enter its functions."""
    entered = _entered_by(target)

    assert entered >= set(target.covers), f"not entered: {sorted(set(target.covers) - entered)}"


def _entered_by(target: Target) -> frozenset[str]:
    """Return the modules of which functions are called, other than when they are imported."""
    seeds = target.seeds()
    found: set[str] = set()

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_globals.get("__name__", ""))

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
    return frozenset(found)
