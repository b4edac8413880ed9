"""The sharing system that the guide works out does what the guide says."""

import re
from pathlib import Path

import pytest

from exporter.sharing.base import System
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.view import NodeFacts, View
from exporter.sharing.nvidia_plugin import Nvidia
from tests.attribution.build import GIB, UUID, gpu, held
from tests.sharing.build import allocations, container, pod, pods

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
RESOURCE = "acme.io/gpu-part"


@pytest.fixture(scope="module")
def acme() -> type[System]:
    """Run the file that the guide shows."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "acme.py", "exec"), names)  # noqa: S102 - it is ours
    return names["Acme"]


def node(annotation: str | None) -> View:
    """Give a node whose pod holds 30 parts, annotated or of unknown annotations."""
    ids = held("a", *(f"part-{n}" for n in range(30)), resource=RESOURCE)
    known = None if annotation is None else pods(pod("a", {"acme.io/gpu": annotation}))
    return View((gpu(),), allocations(ids, []), NodeFacts(pods=known))


def test_its_holder_has_what_the_annotation_says(acme: type[System]):
    """The device by its minor, and the parts of it."""
    view = node("0=30")
    (holding,) = holdings_of(view, [acme(view), Nvidia(view)]).holdings
    assert (holding.holder, holding.device.uuid) == (container("a"), UUID)
    assert (holding.memory_entitled, holding.compute_entitled) == (16 * GIB * 30 // 100, 0.3)


def test_what_cannot_be_read_is_objected_to(acme: type[System]):
    """A malformed annotation is named."""
    view = node("GPU zero")
    found = holdings_of(view, [acme(view), Nvidia(view)])
    assert (found.holdings, found.unresolved) == ((), {RESOURCE: 30})
    assert [(problem.reason, problem.about) for problem in view.problems] == [
        ("acme_annotation", "ml/a: acme.io/gpu")
    ]


def test_its_annotation_is_recorded(acme: type[System]):
    """It says which annotation it reads, and reads no other."""
    assert acme.reads("acme.io/gpu")
    assert not acme.reads("acme.io/gpu-token")


def test_it_is_blind_without_annotations(acme: type[System]):
    """Then it says what is not known."""
    view = node(None)
    assert holdings_of(view, [acme(view), Nvidia(view)]).blind == {"acme": acme.blind_without_pods}
