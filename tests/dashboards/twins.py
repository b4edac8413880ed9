"""The same nodes in three clusters: with our labels, and with all or some of them renamed.

All have the very same samples, so that whatever is asked of one must be answered alike of the others.
"""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tests.dashboards.scene import OF_EXPORTER, Scene
from tests.end_to_end.programs import Prometheus, program, prometheus

CLEAN, RENAMED, PARTLY = "clean", "renamed", "partly"
SCRAPED = "gpu-node-1"
"""The node whose target really has labels that clash with ours."""
OF_TARGETS: Mapping[str, Mapping[str, str]] = {
    SCRAPED: {"namespace": "monitoring", "pod": "exporter-x", "node": "gpu-node-1"},
    "vgpu-host-1": {"namespace": "monitoring", "service": "exporter"},
    "mixed-npu-1": {"namespace": "monitoring", "node": "k8s-2"},
    "gpu-elastic-1": {"pod": "exporter-z"},
    "nos-a10-4": {"container": "exporter"},
}
"""The nodes, and labels of their targets in the cluster where only some of ours are renamed."""

Samples: TypeAlias = list[tuple[float, str]]


@contextmanager
def twins(folder: Path, seen: Scene) -> Iterator[Prometheus]:
    """Serve the clusters, without any rules."""
    with (folder / "page").open("w") as page:
        page.writelines(_lines(seen))
        page.write("# EOF\n")
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "page", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with prometheus(folder, {}) as server:
        yield server


def _lines(seen: Scene) -> Iterator[str]:
    for info in _found(seen, "gpuslice_node_info"):
        node = info["metric"].get("exported_node", info["metric"]["node"])
        if node not in OF_TARGETS:
            continue
        selector = f'{{__name__=~"up|(gpuslice|process)_.+", instance="{info["metric"]["instance"]}"}}'
        # What had ended by then would last for minutes: nothing here marks its end.
        there = [series["metric"] for series in _found(seen, selector)]
        for series in _found(seen, f"{selector}[10m]"):
            labels = series["metric"]
            if labels in there:
                yield from _told(node, labels, series["values"])


def _found(seen: Scene, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seen.server.api("query", query=query, time=str(seen.now))["result"]
    return found


def _told(node: str, labels: Mapping[str, str], values: Samples) -> Iterator[str]:
    clean = cleaned(labels) if node == SCRAPED else labels
    made = renamed(clean, OF_EXPORTER)
    # That is what Prometheus made of them.
    assert node != SCRAPED or made == labels
    yield from _written(clean | {"cluster": CLEAN}, values)
    yield from _written(made | {"cluster": RENAMED}, values)
    yield from _written(renamed(clean, OF_TARGETS[node]) | {"cluster": PARTLY}, values)


def cleaned(labels: Mapping[str, str]) -> dict[str, str]:
    """Give the labels as they are without those of the target, of a target that has all that clash."""
    kept = {name: value for name, value in labels.items() if name not in OF_EXPORTER}
    return {name.removeprefix("exported_"): value for name, value in kept.items()}


def renamed(labels: Mapping[str, str], of_target: Mapping[str, str]) -> dict[str, str]:
    """Give the labels as Prometheus writes them where the target has some as well."""
    return {
        f"exported_{name}" if name in of_target else name: value for name, value in labels.items()
    } | dict(of_target)


def _written(labels: Mapping[str, str], values: Samples) -> Iterator[str]:
    name = labels["__name__"]
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items() if label != "__name__")
    for at, value in values:
        yield f"{name}{{{pairs}}} {value} {at:.3f}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
