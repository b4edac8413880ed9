"""The query for costs at the prices of nodes in docs/recipes.md."""

import re
from pathlib import Path

from tests.product.dashboards.promtool import Asked, answered, during

PAGE = Path(__file__).parents[3] / "docs/recipes.md"


def test_a_replaced_exporter_pod_loses_no_gpu_hours(tmp_path: Path) -> None:
    """A GPU is held for five hours, two of which the former pod of the exporter counted."""
    (query,) = re.findall(r"^# .* prices of OpenCost\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    series = {'node_gpu_hourly_cost{node="n1"}': "2x300"}
    for instance, since, until in (("i1", 0, 120), ("i2", 121, 300)):
        target = f'job="j", instance="{instance}", node="n1"'
        holder = f'{target}, uuid="GPU-a", namespace="ml", pod="p", container="c"'
        series[f"gpuslice_container_entitled_gpu_seconds_total{{{holder}}}"] = during("0+60", since, until)

    answered(tmp_path, series, Asked(f"round({query}, 0.1)", 300, {'namespace="ml"': 10}))
