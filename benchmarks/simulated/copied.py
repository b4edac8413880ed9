"""The same page with copied labels: each series of a GPU says itself what ours say once, for joins."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

_LABEL = re.compile(r'(\w+)="([^"]*)"')
_Labels = Mapping[str, str]
# What dcgm-exporter prints on each of its series, by our names.
_OF_GPU = "gpu", "device", "pci_bus_id", "model"
_OF_HOLDER = "namespace", "pod", "container"


def without_dcgm(page: Sequence[str]) -> list[str]:
    """Leave out the series with DCGM's names, which have copied labels already."""
    return [line for line in page if not re.match(r"(# \w+ )?DCGM_", line)]


def copied(page: Sequence[str]) -> list[str]:
    """Give each series of the page the labels of its node, its GPU, its holder and of the holder's pod.

    Each GPU of the page is held by one container at most.
    """
    node = next(_parsed(page, "gpuslice_node_info"))
    of_node = {"node": node["node"], "driver_version": node["driver_version"]}
    pods = {labels["pod"]: _those(labels, "label_") for labels in _parsed(page, "gpuslice_pod_labels")}
    holders = {
        labels["uuid"]: {name: labels[name] for name in _OF_HOLDER} | pods[labels["pod"]]
        for labels in _parsed(page, "gpuslice_container_info")
    }
    gpus = {
        labels["uuid"]: of_node | {name: labels[name] for name in _OF_GPU} | holders.get(labels["uuid"], {})
        for labels in _parsed(page, "gpuslice_gpu_info")
    }
    return [line if line.startswith("#") else _with(line, of_node, gpus) for line in page]


def _parsed(page: Iterable[str], name: str) -> Iterator[_Labels]:
    return (dict(_LABEL.findall(line)) for line in page if line.startswith(f"{name}{{"))


def _those(labels: _Labels, prefix: str) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(prefix)}


def _with(line: str, of_node: _Labels, gpus: Mapping[str, _Labels]) -> str:
    series, _, value = line.rpartition(" ")
    name, _, text = series.rstrip("}").partition("{")
    labels = dict(_LABEL.findall(text))
    more = {**gpus.get(labels.get("uuid", ""), of_node), **labels}
    written = ",".join(f'{label}="{told}"' for label, told in more.items())
    return f"{name}{{{written}}} {value}"
