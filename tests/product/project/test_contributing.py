"""The sharing system that the guide writes works as the guide says."""

import pytest

from exporter.sharing.base import System
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.view import NodeFacts, View
from exporter.sharing.nvidia_plugin import Nvidia
from tests.core.attribution.build import GIB, UUID, gpu, held
from tests.core.sharing.build import allocations, container, pod, pods
from tests.product.project.guide import blocks

RESOURCE = "acme.io/gpu-part"


@pytest.fixture(scope="module")
def acme() -> type[System]:
    """Return the class of the guide's file."""
    (code,) = blocks("A sharing system, worked out")
    names: dict[str, object] = {}
    exec(compile(code, "acme.py", "exec"), names)  # noqa: S102 - it is ours
    return names["Acme"]


def node(annotation: str | None) -> View:
    """Return a node whose pod holds 30 parts; None: its annotations are unknown."""
    ids = held("a", *(f"part-{n}" for n in range(30)), resource=RESOURCE)
    known = None if annotation is None else pods(pod("a", {"acme.io/gpu": annotation}))
    return View((gpu(),), allocations(ids, []), NodeFacts(pods=known))


def test_its_holder_has_the_share_of_the_annotation(acme: type[System]):
    """The device by its minor number, and the parts of it."""
    view = node("0=30")
    (holding,) = holdings_of(view, [acme(view), Nvidia(view)]).holdings
    assert (holding.holder, holding.device.uuid) == (container("a"), UUID)
    assert (holding.memory_entitled, holding.compute_entitled) == (16 * GIB * 30 // 100, 0.3)


def test_a_malformed_annotation_is_a_problem(acme: type[System]):
    view = node("GPU zero")
    found = holdings_of(view, [acme(view), Nvidia(view)])
    assert (found.holdings, found.unresolved) == ((), {RESOURCE: 30})
    assert [(problem.reason, problem.about) for problem in view.problems] == [
        ("acme_annotation", "ml/a: acme.io/gpu")
    ]


def test_its_annotation_is_recorded(acme: type[System]):
    """And no other."""
    assert acme.reads("acme.io/gpu")
    assert not acme.reads("acme.io/gpu-token")


def test_without_annotations_it_reports_what_is_unknown(acme: type[System]):
    view = node(None)
    assert holdings_of(view, [acme(view), Nvidia(view)]).blind == {"acme": acme.blind_without_pods}
