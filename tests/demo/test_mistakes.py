"""Errors of scenarios that cannot be used."""

from typing import Any

import pytest

from exporter.demo.scenario.catalog import load_file, parse
from exporter.demo.scenario.codec import ScenarioError
from tests.demo.making import gpu, instance, made, pod

CUT = {"instances": [instance(1, 0), instance(2, 1)]}


def error_of(**parts: Any) -> str:
    """Return the error of a document, without the name of its file."""
    with pytest.raises(ScenarioError) as caught:
        made(**parts)
    text = str(caught.value)
    assert text.startswith("test.json: ")
    return text.removeprefix("test.json: ")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"gpus": "many"}, 'gpus: must be a list, not "many"'),
        ({"gpus": [gpu(), 3]}, "gpus[1]: must be an object, not 3"),
        ({"gpus": [gpu(modle="T4")]}, "gpus[0].modle: is not a field here, did you mean model?"),
        ({"node": {}}, "node.name: is missing"),
        ({"gpus": [gpu(memory_total="lots")]}, 'gpus[0].memory_total: must be a whole number, not "lots"'),
        ({"gpus": [gpu(memory_total=True)]}, "gpus[0].memory_total: must be a whole number, not true"),
        ({"gpus": [gpu(minor=-1)]}, "gpus[0].minor: must be a whole number from 0 to"),
        ({"gpus": [gpu(memory_total=10**30)]}, "gpus[0].memory_total: must be a whole number from 0 to"),
        ({"gpus": [gpu(compute_mode="fast")]}, "gpus[0].compute_mode: must be one of default, "),
        ({"gpus": [gpu(pci_bus_id="07:00")]}, "gpus[0].pci_bus_id: must look like 00000000:07:00.0"),
        (
            {"gpus": [gpu(uuid="GPU-x"), gpu(uuid="GPU-x")]},
            "gpus[1].uuid: is GPU-x, which gpus[0] already has",
        ),
        ({"gpus": [gpu(count=0)]}, "gpus[0].count: must be at least 1"),
        ({"gpus": [gpu(power_idle_mw=200_000)]}, "gpus[0].power_idle_mw: must be between"),
        ({"gpus": [gpu(memory_total="1 MiB")]}, "gpus[0].memory_total: must be more than"),
        (
            {"gpus": [gpu(), gpu(mig={"instances": [instance(1, 0, profile="half")]})]},
            "gpus[1].mig.instances[0].profile: must be a MIG profile such as 1g.5gb, not 'half'",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(1, 0, size=2), instance(2, 1)]})]},
            "gpus[0].mig.instances: overlap: gi 1 and gi 2 both use memory slice 1",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(n, n) for n in range(8)]})]},
            "gpus[0].mig.instances: take more than the 7 compute slices",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(1, 0, memory_bytes="16 GiB")]})]},
            "gpus[0].mig.instances: take 17179869184 bytes, more than",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(1, 0), instance(1, 1, ci=1)]})]},
            "gpus[0].mig.instances[1]: must have the same memory and placement as the others of gi 1",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(1, 0, uuid="MIG-a"), instance(1, 0, uuid="MIG-b")]})]},
            "gpus[0].mig.instances: name one compute instance twice",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(1, 0, overhead="3 GiB")]})]},
            "gpus[0].mig.instances[0].memory_bytes: must be more than reserved and overhead",
        ),
        (
            {"gpus": [gpu(power_limit_mw=900_000)]},
            "gpus[0].power_limit_mw: must be between power_idle_mw and power_max_mw",
        ),
        ({"gpus": [gpu(links={"down": 1})]}, "gpus[0].links.down: must be at most nvlinks (0)"),
        (
            {"gpus": [gpu(links={"nvlinks": 1, "to": {"{gpu:1}": 2}}), gpu()]},
            "gpus[0].links.to: must be at most 1 links in all, not 2",
        ),
        ({"gpus": [gpu(links={"to": {"{gpu:0}": 0}})]}, "gpus[0].links.to: GPU-"),
        ({"gpus": [gpu(links={"to": {"{gpu:9}": 1}})]}, "gpus[0]: {gpu:9} is not a device"),
        (
            {"gpus": [gpu(links={"relations": {"{gpu:1}": "NEAR"}}), gpu()]},
            "gpus[0].links.relations: NEAR is not one of NODE, PHB, PIX, PSB, PXB, SYS",
        ),
        (
            {"gpus": [gpu(links={"errors": {"crc": 1}})]},
            "gpus[0].links.errors: crc is not one of buffer_overrun, ",
        ),
        ({"gpus": [gpu(links={"cpus": "all"})]}, "gpus[0].links.cpus: must look like 0-31,64-95, not 'all'"),
        (
            {"gpus": [gpu(health={"errors": {"corrected/dram": 1}})]},
            "gpus[0].health.errors: corrected/dram is not one of corrected/aggregate/",
        ),
        (
            {"gpus": [gpu(health={"remapped_rows": {"single_bit": 1}})]},
            "gpus[0].health.remapped_rows: single_bit is not one of corrected, uncorrected",
        ),
        (
            {"gpus": [gpu(answers={"nvmlDeviceGetPowr": [1]})]},
            "gpus[0].answers: nvmlDeviceGetPowr is not a call of the fake driver that returns numbers",
        ),
        (
            {"gpus": [gpu(mig={"instances": [instance(1, 0, answers={"field:x": [1]})]})]},
            "gpus[0].mig.instances[0].answers: field:x is not a call",
        ),
        ({"gpus": [gpu(answers={"field:82": []})]}, "gpus[0].answers: field:82 must have one number"),
        ({"offers": [{"resource": "r"}]}, "offers[0]: must have either ids or"),
        ({"offers": [{"resource": "r", "ids": ["{gpu:7}"]}]}, "offers[0].ids: {gpu:7} is not a device"),
        ({"pods": [pod("p", {"memory": 1})]}, "pods[0].containers[0].processes[0].device: must be given"),
        (
            {"pods": [pod("p", {"device": "GPU-no"})]},
            (
                "pods[0].containers[0].processes[0].device: "
                "GPU-no is neither a GPU without MIG nor a MIG instance"
            ),
        ),
        (
            {"gpus": [gpu(mig=CUT)], "pods": [pod("p", {"device": "{gpu:0}"})]},
            "pods[0].containers[0].processes[0].device: GPU-",
        ),
        (
            {"pods": [pod("p", {"device": "{gpu:0}", "load": {"high": 120}})]},
            "pods[0].containers[0].processes[0].load.high: must be a percentage, at most 100",
        ),
        (
            {"pods": [pod("p", {"device": "{gpu:0}", "load": {"shape": "sine", "low": 9, "high": 1}})]},
            "pods[0].containers[0].processes[0].load.low: must be between 0 and high",
        ),
        (
            {"pods": [pod("p", {"device": "{gpu:0}", "load": {"period": 0}})]},
            "pods[0].containers[0].processes[0].load.period: must be above 0",
        ),
        (
            {"pods": [pod("p", {"device": "{gpu:0}", "pid": 1})]},
            "pods[0].containers[0].processes[0].pid: must be above 1",
        ),
        (
            {"pods": [pod("p", {"device": "{gpu:0}", "pid": 9}, {"device": "{gpu:0}", "pid": 9})]},
            (
                "pods[0].containers[0].processes[1].pid: "
                "is 9, which pods[0].containers[0].processes[0] already has"
            ),
        ),
        ({"pods": [pod("p"), pod("p")]}, "pods[1].name: is ml/p, which pods[0] already has"),
        ({"pods": [pod("../../etc")]}, "pods[0].name: must match"),
        ({"pods": [pod("p") | {"uid": "../x"}]}, "pods[0].uid: must match"),
        ({"pods": [pod("p", name="a/b")]}, "pods[0].containers[0].name: must match"),
        ({"pods": [pod("p", container_id="xyz")]}, "pods[0].containers[0].container_id: must match"),
        (
            {"pods": [pod("p", claims=[{"device": "gpu-0", "name": "c", "uid": "../x"}])]},
            "pods[0].containers[0].claims[0].uid: must match",
        ),
        (
            {"pods": [pod("p", {"device": "{gpu:0}", "memory": "17 GiB"})]},
            "gpus[0]: its processes use up to 18253611008 bytes, its memory has room for",
        ),
        ({"host_processes": [{"command": "Xorg"}]}, "host_processes[0].device: must be given"),
        ({"faults": [{"kind": "meteor"}]}, "faults[0].kind: must be one of nvml_error, nvml_hang, "),
        ({"faults": [3]}, "faults[0]: must be an object, not 3"),
        ({"faults": [{"kind": "kubelet_down", "for": 0}]}, "faults[0].for: must be a time"),
        ({"faults": [{"kind": "kubelet_down", "at": -1}]}, "faults[0].at: must be a time"),
        (
            {"faults": [{"kind": "nvml_error", "code": "UNKNOWN"}]},
            "faults[0]: must name a function, a device",
        ),
        (
            {"faults": [{"kind": "nvml_error", "function": "nvmlDeviceGetPowr", "code": "UNKNOWN"}]},
            "faults[0].function: nvmlDeviceGetPowr is not a function of the fake driver",
        ),
        (
            {"faults": [{"kind": "nvml_error", "device": "GPU-no", "code": "UNKNOWN"}]},
            "faults[0].device: GPU-no is not a device of this node",
        ),
        (
            {"faults": [{"kind": "nvml_error", "device": "{gpu:0}", "code": "ON_FIRE"}]},
            "faults[0].code: ON_FIRE is not an NVML error",
        ),
        ({"faults": [{"kind": "pod_delete", "pod": "ml/no"}]}, "faults[0].pod: ml/no is not a pod"),
        ({"faults": [{"kind": "process_exit", "pid": 5}]}, "faults[0].pid: no process has the pid 5"),
        (
            {"faults": [{"kind": "gpu_absent", "gpu": 1}]},
            "faults[0].gpu: must be the index of one of the 1 GPUs",
        ),
        ({"faults": [{"kind": "driver_reload", "at": 3, "for": 0}]}, "faults[0].for: must be a time"),
        ({"faults": [{"kind": "pod_add", "pod": pod("p") | {"count": 2}}]}, "faults[0].pod.count: must be 1"),
        (
            {"faults": [{"kind": "mig_layout", "gpu": 4, "instances": []}]},
            "faults[0].gpu: must be the index of one of the 1 GPUs",
        ),
        (
            {"faults": [{"kind": "mig_layout", "gpu": 0, "instances": []}]},
            "faults[0].instances: cannot be: NVIDIA Test has no mig",
        ),
    ],
)
def test_a_mistake_has_the_path_of_its_value_and_what_it_should_be(parts, message):
    assert error_of(**parts).startswith(message)


def test_a_syntax_error_has_file_line_and_column():
    with pytest.raises(ScenarioError, match=r"^a\.json: line 2, column 3: is not JSON"):
        parse('{\n  name: "x"}', "a.json")


@pytest.mark.parametrize("text", ["[]", '{"name": NaN}', "[" * 100_000, '{"name": 1' + "0" * 5000 + "}", "3"])
def test_any_other_text_is_an_error_with_its_file(text):
    with pytest.raises(ScenarioError, match=r"^a\.json: "):
        parse(text, "a.json")


def test_an_unreadable_file_is_an_error_with_its_path(tmp_path):
    with pytest.raises(ScenarioError, match="No such file"):
        load_file(tmp_path / "no.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load_file(tmp_path / "bytes.json")
