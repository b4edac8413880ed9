"""Costs by held and by used time."""

import pytest
import yaml

from tests.product.recipes.scene import CLUSTERS, RECIPES
from tests.together.end_to_end.programs import Prometheus

pytestmark = pytest.mark.slow

PRICE = 2.5
RULES = {
    rule["record"].split("_")[1]: " ".join(rule["expr"].split())
    for rule in yaml.safe_load((RECIPES / "cost-rules.yaml").read_text())["spec"]["groups"][0]["rules"]
}


@pytest.mark.parametrize("kind", ["held", "used"])
def test_the_price_is_that_of_a_gpu_and_hour(kind: str, server: Prometheus) -> None:
    """3600 GPU-seconds cost the price, in both namespaces and clusters."""
    seconds = f"namespace:gpuslice_{kind}_gpu_seconds:increase1h"
    found = server.query(f"({RULES[kind]}) / ({seconds} > 0)")

    assert found
    assert list(found.values()) == pytest.approx([PRICE / 3600] * len(found))


def test_held_cost_is_used_unused_and_unmeasured(server: Prometheus) -> None:
    """Time without a measurement is apart: it does not look unused. A namespace without any has all of it."""
    part = f"({RULES['unmeasured']}) / ({RULES['held']})"
    found = server.query(part)
    # Held are whole GPUs, slices of 1/4, and MIG devices of 1/7, which are not measured.
    lab = (2 / 7) / (2 + 1 / 4 + 2 / 7)
    ml = (1 / 7) / (1 + 3 / 4 + 1 / 7)

    # In the east, a pod of the node that went away was held for a part of the time.
    assert found.keys() == {tuple(sorted((cluster, name))) for cluster in CLUSTERS for name in ("lab", "ml")}
    assert found["east", "lab"] == pytest.approx(lab, rel=0.25)
    assert found["lab", "west"] == pytest.approx(lab, rel=0.25)
    assert found["ml", "west"] == pytest.approx(ml, rel=0.25)


def test_what_was_never_measured_is_no_zero_cost(server: Prometheus) -> None:
    """A namespace that has no measurement at all has unmeasured cost, and no used cost."""
    never = RULES["unmeasured"].replace(
        "namespace:gpuslice_measured_gpu_seconds:increase1h",
        'namespace:gpuslice_measured_gpu_seconds:increase1h{namespace=""}',
    )

    assert set(server.query(f"({never}) / ({RULES['held']})").values()) == {1}
