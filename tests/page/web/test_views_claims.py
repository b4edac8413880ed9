"""What the page of a holder shows of its resource claims, and of the health that the kubelet reports."""

import pytest

from exporter.model import HeldClaim
from tests.page.web.test_views_holder import draw, shared
from tests.page.web.views_reading import UUID, gpu, gpu_page, read, snapshot
from tests.page.web.views_reading import draw as draw_node


def _paragraphs(**facts) -> list[str]:
    shown = snapshot(gpus=[gpu(UUID)], containers=[shared(**facts)])
    return [line.text for line in draw(shown).one("div", of="about").all("p")]


def test_the_claim_of_a_holder_is_named() -> None:
    claims = (
        HeldClaim("ml", "one", "", "gpu.nvidia.com", "node-1", "gpu-0"),
        HeldClaim("ml", "two", "big", "gpu.nvidia.com", "node-1", "gpu-0"),
    )
    shown = _paragraphs(claims=claims)

    assert "Claim ml/one (device gpu-0 of pool node-1)" in shown
    assert "Claim ml/two (request big, device gpu-0 of pool node-1)" in shown


def test_the_health_is_shown_where_the_kubelet_reports_it() -> None:
    assert "Health reported by the kubelet: Unhealthy" in _paragraphs(health="Unhealthy")
    assert not [line for line in _paragraphs() if line.startswith(("Claim", "Health"))]


@pytest.mark.parametrize(
    ("condition", "driver"), [({}, True), ({"recovery_action": "reset"}, False)], ids=["well", "sick"]
)
def test_what_kubernetes_reports_is_next_to_what_the_driver_does(condition: dict, driver: bool) -> None:
    """The text "The driver reports no problem" is there only if it reports none."""
    shown = snapshot(gpus=[gpu(**condition)], containers=[shared(health="Unhealthy")])
    uuid = shown.gpus[0].identity.uuid

    for page in (draw_node(shown), read(gpu_page(shown, uuid))):
        text = page.one(id="health").text
        assert "as Unhealthy" in text
        assert ("The driver reports no problem" in text) == driver


def test_an_unhealthy_device_is_counted_and_answers_the_question_about_faults() -> None:
    shown = snapshot(gpus=[gpu()], containers=[shared(health="Unhealthy")])

    assert "1 unhealthy GPU" in draw_node(shown).text
    assert "Unhealthy in Kubernetes" in draw_node(shown).one(id="gpu-0").text
    assert "Kubernetes reports its slice of GPU 0 as Unhealthy." in draw(shown).one(id="answers").text


def test_a_free_gpu_of_a_node_with_claims_is_not_said_to_lack_an_offer() -> None:
    """No device plugin offers slices there."""
    claim = HeldClaim("ml", "one", "", "gpu.nvidia.com", "node-1", "gpu-0")
    for claims, text in (((claim,), "no slices held"), ((), "no slices offered")):
        gpus = [gpu(), gpu(1, sharing="none", slices=(), holders=0)]
        shown = snapshot(gpus=gpus, containers=[shared(claims=claims)])
        assert text in draw_node(shown).one(id="gpu-1").text


@pytest.mark.parametrize("health", ["Healthy", "Unknown", ""])
def test_a_device_that_is_not_unhealthy_needs_no_attention(health: str) -> None:
    shown = snapshot(gpus=[gpu()], containers=[shared(health=health)])
    assert "Kubernetes reports" not in draw_node(shown).text
