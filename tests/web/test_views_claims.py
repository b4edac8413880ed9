"""What the page of a holder shows of its resource claims, and of the health that the kubelet reports."""

from exporter.model import HeldClaim
from tests.web.test_views_holder import draw, shared
from tests.web.views_reading import UUID, gpu, snapshot


def _paragraphs(**facts) -> list[str]:
    shown = snapshot(gpus=[gpu(UUID)], containers=[shared(**facts)])
    return [line.text for line in draw(shown).one("div", of="about").all("p")]


def test_the_claim_of_a_holder_is_named() -> None:
    """With its request where the driver's checkpoint has it, and the device by the driver's names."""
    claims = (
        HeldClaim("ml", "one", "", "gpu.nvidia.com", "node-1", "gpu-0"),
        HeldClaim("ml", "two", "big", "gpu.nvidia.com", "node-1", "gpu-0"),
    )
    shown = _paragraphs(claims=claims)

    assert "Claim ml/one: device gpu-0 of pool node-1" in shown
    assert "Claim ml/two, request big: device gpu-0 of pool node-1" in shown


def test_the_health_is_shown_where_the_kubelet_reports_it() -> None:
    """A holder without claims and without a report has neither line."""
    assert "Health reported by the kubelet: Unhealthy" in _paragraphs(health="Unhealthy")
    assert not [line for line in _paragraphs() if line.startswith(("Claim", "Health"))]
