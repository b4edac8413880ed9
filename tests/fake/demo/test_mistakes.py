"""Errors of scenarios that cannot be used."""

import pytest

from exporter.demo.scenario.catalog import load_file, parse
from exporter.documents import DocumentError
from tests.fake.demo.making import gpu, instance, made, pod


def mig(*instances):
    """Return the changes of a GPU in MIG mode."""
    return {"mig": {"instances": list(instances)}}


OF_A_GPU = [
    ({"modle": "T4"}, "modle: there is no such key; did you mean model?"),
    ({"memory_total": "lots"}, "memory_total: must be a whole number, not 'lots'"),
    ({"memory_total": True}, "memory_total: must be a whole number, not true"),
    ({"minor": -1}, "minor: must be a whole number from 0 to"),
    ({"memory_total": 10**30}, "memory_total: must be a whole number from 0 to"),
    ({"compute_mode": "fast"}, "compute_mode: must be one of default, "),
    ({"pci_bus_id": "07:00"}, "pci_bus_id: must look like 00000000:07:00.0"),
    ({"count": 0}, "count: must be at least 1"),
    ({"power_idle_mw": 200_000}, "power_idle_mw: must be between"),
    ({"power_limit_mw": 900_000}, "power_limit_mw: must be between power_idle_mw and power_max_mw"),
    ({"memory_total": "1 MiB"}, "memory_total: must be more than"),
    (
        mig(instance(1, 0, profile="half")),
        "mig.instances[0].profile: must be a MIG profile such as 1g.5gb, not 'half'",
    ),
    (
        mig(instance(1, 0, size=2), instance(2, 1)),
        "mig.instances: overlap: gi 1 and gi 2 both use memory slice 1",
    ),
    (mig(*(instance(n, n) for n in range(8))), "mig.instances: take more than the 7 compute slices"),
    (mig(instance(1, 0, memory_bytes="16 GiB")), "mig.instances: take 17179869184 bytes, more than"),
    (
        mig(instance(1, 0), instance(1, 1, ci=1)),
        "mig.instances[1]: must have the same memory and placement as the others of gi 1",
    ),
    (
        mig(instance(1, 0, uuid="MIG-a"), instance(1, 0, uuid="MIG-b")),
        "mig.instances: name one compute instance twice",
    ),
    (
        mig(instance(1, 0, overhead="3 GiB")),
        "mig.instances[0].memory_bytes: must be more than reserved and overhead",
    ),
    (
        mig(instance(1, 0, answers={"field:x": [1]})),
        "mig.instances[0].answers: field:x is not a call",
    ),
    ({"links": {"down": 1}}, "links.down: must be at most nvlinks (0)"),
    ({"links": {"to": {"{gpu:0}": 0}}}, "links.to: GPU-"),
    ({"links": {"errors": {"crc": 1}}}, "links.errors: crc is not one of buffer_overrun, "),
    ({"links": {"cpus": "all"}}, "links.cpus: must look like 0-31,64-95, not 'all'"),
    (
        {"health": {"errors": {"corrected/dram": 1}}},
        "health.errors: corrected/dram is not one of corrected/aggregate/",
    ),
    (
        {"health": {"remapped_rows": {"single_bit": 1}}},
        "health.remapped_rows: single_bit is not one of corrected, uncorrected",
    ),
    (
        {"answers": {"nvmlDeviceGetPowr": [1]}},
        "answers: nvmlDeviceGetPowr is not a call of the fake driver that returns numbers",
    ),
    ({"answers": {"field:82": []}}, "answers: field:82 must have one number"),
]
OF_A_PROCESS = [
    ({"memory": 1}, "device: must be given"),
    ({"device": "GPU-no"}, "device: GPU-no is neither a GPU without MIG nor a MIG instance"),
    ({"device": "{gpu:0}", "load": {"high": 120}}, "load.high: must be a percentage, at most 100"),
    (
        {"device": "{gpu:0}", "load": {"shape": "sine", "low": 9, "high": 1}},
        "load.low: must be between 0 and high",
    ),
    ({"device": "{gpu:0}", "load": {"period": 0}}, "load.period: must be above 0"),
    ({"device": "{gpu:0}", "pid": 1}, "pid: must be above 1"),
]
OF_A_POD = [
    (pod("../../etc"), "name: must match"),
    (pod("p") | {"uid": "../x"}, "uid: must match"),
    (pod("p", name="a/b"), "containers[0].name: must match"),
    (pod("p", container_id="xyz"), "containers[0].container_id: must match"),
    (
        pod("p", claims=[{"device": "gpu-0", "name": "c", "uid": "../x"}]),
        "containers[0].claims[0].uid: must match",
    ),
    (
        pod("p", {"device": "{gpu:0}", "pid": 9}, {"device": "{gpu:0}", "pid": 9}),
        "containers[0].processes[1].pid: is 9, which pods[0].containers[0].processes[0] already has",
    ),
]
OF_A_FAULT = [
    ({"kind": "meteor"}, ".kind: must be one of nvml_error, nvml_hang, "),
    (3, ": must be a mapping, not 3"),
    ({"kind": "kubelet_down", "for": 0}, ".for: must be a time"),
    ({"kind": "kubelet_down", "at": -1}, ".at: must be a time"),
    ({"kind": "nvml_error", "code": "UNKNOWN"}, ": must name a function, a device"),
    (
        {"kind": "nvml_error", "function": "nvmlDeviceGetPowr", "code": "UNKNOWN"},
        ".function: nvmlDeviceGetPowr is not a function of the fake driver",
    ),
    (
        {"kind": "nvml_error", "device": "GPU-no", "code": "UNKNOWN"},
        ".device: GPU-no is not a device of this node",
    ),
    (
        {"kind": "nvml_error", "device": "{gpu:0}", "code": "ON_FIRE"},
        ".code: ON_FIRE is not an NVML error",
    ),
    ({"kind": "pod_delete", "pod": "ml/no"}, ".pod: ml/no is not a pod"),
    ({"kind": "process_exit", "pid": 5}, ".pid: no process has the pid 5"),
    ({"kind": "gpu_absent", "gpu": 1}, ".gpu: must be the index of one of the 1 GPUs"),
    ({"kind": "driver_reload", "at": 3, "for": 0}, ".for: must be a time"),
    ({"kind": "pod_add", "pod": pod("p") | {"count": 2}}, ".pod.count: must be 1"),
    ({"kind": "mig_layout", "gpu": 4, "instances": []}, ".gpu: must be the index of one of the 1 GPUs"),
    ({"kind": "mig_layout", "gpu": 0, "instances": []}, ".instances: cannot be: NVIDIA Test has no mig"),
]
OTHERS = [
    ({"gpus": "many"}, "gpus: must be a list, not a string"),
    ({"gpus": [gpu(), 3]}, "gpus[1]: must be a mapping, not 3"),
    ({"node": {}}, "node.name: is missing"),
    ({"gpus": [gpu(uuid="GPU-x"), gpu(uuid="GPU-x")]}, "gpus[1].uuid: is GPU-x, which gpus[0] already has"),
    (
        {"gpus": [gpu(links={"nvlinks": 1, "to": {"{gpu:1}": 2}}), gpu()]},
        "gpus[0].links.to: must be at most 1 links in all, not 2",
    ),
    ({"gpus": [gpu(links={"to": {"{gpu:9}": 1}})]}, "gpus[0]: {gpu:9} is not a device"),
    (
        {"gpus": [gpu(links={"relations": {"{gpu:1}": "NEAR"}}), gpu()]},
        "gpus[0].links.relations: NEAR is not one of NODE, PHB, PIX, PSB, PXB, SYS",
    ),
    ({"offers": [{"resource": "r"}]}, "offers[0]: must have either ids or"),
    ({"offers": [{"resource": "r", "ids": ["{gpu:7}"]}]}, "offers[0].ids: {gpu:7} is not a device"),
    (
        {"gpus": [gpu(**mig(instance(1, 0)))], "pods": [pod("p", {"device": "{gpu:0}"})]},
        "pods[0].containers[0].processes[0].device: GPU-",
    ),
    ({"pods": [pod("p"), pod("p")]}, "pods[1].name: is ml/p, which pods[0] already has"),
    (
        {"pods": [pod("p", {"device": "{gpu:0}", "memory": "17 GiB"})]},
        "gpus[0]: its processes use up to 18253611008 bytes, its memory has room for",
    ),
    ({"host_processes": [{"command": "Xorg"}]}, "host_processes[0].device: must be given"),
]
MISTAKES = [
    *(({"gpus": [gpu(**changes)]}, f"gpus[0].{message}") for changes, message in OF_A_GPU),
    *(
        ({"pods": [pod("p", process)]}, f"pods[0].containers[0].processes[0].{message}")
        for process, message in OF_A_PROCESS
    ),
    *(({"pods": [a_pod]}, f"pods[0].{message}") for a_pod, message in OF_A_POD),
    *(({"faults": [fault]}, f"faults[0]{message}") for fault, message in OF_A_FAULT),
    *OTHERS,
]


@pytest.mark.parametrize(("parts", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_has_the_path_of_its_value_and_what_it_should_be(parts, message):
    with pytest.raises(DocumentError) as caught:
        made(**parts)
    assert str(caught.value).startswith(f"test.json: {message}")


def test_a_syntax_error_has_file_line_and_column():
    with pytest.raises(DocumentError, match=r"^a\.json: line 2, column 3: is not JSON"):
        parse('{\n  name: "x"}', "a.json")


@pytest.mark.parametrize("text", ["[]", '{"name": NaN}', "[" * 100_000, '{"name": 1' + "0" * 5000 + "}", "3"])
def test_any_other_text_is_an_error_with_its_file(text):
    with pytest.raises(DocumentError, match=r"^a\.json: "):
        parse(text, "a.json")


def test_an_unreadable_file_is_an_error_with_its_path(tmp_path):
    with pytest.raises(DocumentError, match="No such file"):
        load_file(tmp_path / "no.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DocumentError, match="not UTF-8"):
        load_file(tmp_path / "bytes.json")
