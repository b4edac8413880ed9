"""Findings of fuzzing, as tests of what holds now."""

import json

import pytest

from exporter.config.parse import SettingsError, read_options
from exporter.dcgm_scrape.page import read_page
from exporter.demo.scenario.catalog import parse
from exporter.documents import DocumentError, read_yaml
from exporter.fleet.prometheus import PrometheusError, Response, read_vector
from exporter.model import Allocations, ClaimedDevice, ContainerRef, DeviceUse
from exporter.sharing.base.view import View
from exporter.sharing.dra import Dra
from exporter.sharing.gpu_manager import decode_checkpoint
from exporter.workloads.processes import boot_seconds
from tests.core.hardware.amd.tree import GPU_ID, Tree
from tests.core.hardware.making import gpu
from tests.together.fuzz.target import examine
from tests.together.fuzz.test_targets import BY_NAME

GOOD = 'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-1"} 0.25\n'


@pytest.mark.parametrize("escape", [r"\UFFFFFFFF", r"\U00110000"])
def test_an_escape_beyond_unicode_is_no_yaml(escape, tmp_path) -> None:
    """The error is that of any other mistake in a file, with its name."""
    path = tmp_path / "config.yaml"
    path.write_text(f'listen: "{escape}"\n', encoding="ascii")

    with pytest.raises(SettingsError, match=r"config.yaml: not valid YAML"):
        read_options(path)
    with pytest.raises(DocumentError, match="not valid YAML"):
        read_yaml(path.read_bytes())


def test_repeated_aliases_of_yaml_are_one_value() -> None:
    """Each level doubles the one below: in full they would not fit any memory."""
    levels = "".join(f"{level}: &a{level} [*a{level - 1}, *a{level - 1}]\n" for level in range(1, 100))
    document = read_yaml(f"0: &a0 [x]\n{levels}".encode())

    assert document["99"][0] is document["99"][1] is document["98"]


@pytest.mark.parametrize(
    "line",
    [
        f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-2",GPU_I_ID="{"9" * 5000}"}} 1\n',
        'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-2",GPU_I_ID="٣"} 1\n',
        f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-2"}} 1 {"9" * 400}\n',
    ],
    ids=["instance-without-end", "instance-in-other-digits", "time-without-end"],
)
def test_an_impossible_number_of_a_dcgm_exporter_costs_only_its_line(line) -> None:
    reading = read_page(GOOD + line, 0.0)

    assert {device: profile.active for device, profile in reading.profiles.items()} == {
        ("GPU-1", None): {"sm": 0.25}
    }


@pytest.mark.parametrize("metric", ["null", "[]", '{"uuid":1}', '{"uuid":null}'])
def test_labels_that_are_not_texts_are_not_an_answer(metric) -> None:
    with pytest.raises(PrometheusError, match="does not answer as Prometheus does"):
        read_vector(_answer("vector", metric, '"value":[1,"1"]'))


def test_a_number_that_no_sample_can_have_is_not_an_answer() -> None:
    """Numbers of JSON have any length."""
    with pytest.raises(PrometheusError, match="does not answer as Prometheus does"):
        read_vector(_answer("vector", "{}", f'"value":[1,1{"0" * 400}]'))


@pytest.mark.parametrize("text", ["-112.5 3.0", "nan 1", "inf 1"])
def test_an_impossible_boot_clock_is_unknown(text, tmp_path) -> None:
    (tmp_path / "uptime").write_text(text, encoding="ascii")

    assert boot_seconds(tmp_path) is None


def test_true_is_not_an_amount() -> None:
    """It is not a limit of one byte, or of one percent."""
    entry = '{"Devices":["/dev/nvidia0"],"Cores":true,"Memory":true}'
    given, wrong = decode_checkpoint(f'{{"PodGPUMapping":{{"u":{{"main":{entry}}}}}}}')

    assert (given, wrong) == ({("u", "main"): (DeviceUse(device="0"),)}, [])


def test_a_problem_quotes_only_the_beginning_of_a_long_name() -> None:
    holder = ContainerRef("a", "b", "c")
    claim = ClaimedDevice(holder, Dra.driver, "pool", "x" * 5000)
    view = View((), Allocations(allocated=(), offered=(), api_version="v1", read_at=0.0, claims=(claim,)))
    Dra(view).grants()

    assert [len(problem.about) for problem in view.problems] == [len("a/b: ") + 100]


@pytest.mark.parametrize("name", ["mem_info_vis_vram_total", "pcie_replay_count", "hwmon/hwmon6/freq1_input"])
async def test_a_negative_number_of_a_card_costs_only_its_reading(name, tmp_path) -> None:
    tree = Tree(tmp_path)
    tree.write(tree.card() / name, "-1")
    gpu = await tree.gpu()

    readings = {
        "mem_info_vis_vram_total": gpu.bar1,
        "pcie_replay_count": gpu.pcie_replays,
        "hwmon/hwmon6/freq1_input": gpu.clocks_megahertz.get("sm"),
    }
    assert [other for other, value in readings.items() if value is None] == [name]


@pytest.mark.parametrize("text", ["-1", "much"])
async def test_a_process_with_an_invalid_amount_makes_the_list_unknown(text, tmp_path) -> None:
    """It is not taken for a process without memory."""
    tree = Tree(tmp_path)
    tree.card()
    tree.node()
    tree.process(41, 1 << 30)
    tree.write(tree.process(42, 1 << 30) / f"vram_{GPU_ID}", text)

    assert (await tree.gpu()).processes is None


@pytest.mark.parametrize(
    ("target", "content"),
    [("nvml-processes", b"\x00\x80\x0a"), ("nvml-vgpus", b"\x00\x00\x80\xff")],
    ids=["processes", "vgpus"],
)
def test_a_list_that_is_longer_than_its_buffer_is_unknown(target, content) -> None:
    examine(BY_NAME[target], content)


def test_an_impossible_end_of_a_license_is_unknown() -> None:
    """The license itself is known."""
    examine(BY_NAME["nvml-vgpus"], bytes(22) + b"\x80\x14\x01\x04" + b"\xff" * 4)


async def test_memory_of_a_process_that_no_machine_has_is_unknown(tmp_path) -> None:
    """The numbers are those of KFD; NVML has the same rule."""
    tree = Tree(tmp_path)
    tree.card()
    tree.node()
    tree.process(41, (1 << 64) - 1)

    assert [process.memory for process in (await tree.gpu()).processes or ()] == [None]


async def test_the_memory_of_a_card_that_a_process_exceeds_is_unknown(tmp_path) -> None:
    """As on processors whose graphics share their memory."""
    tree = Tree(tmp_path)
    tree.card()
    tree.node()
    tree.process(41, 65 << 30)
    reading = await tree.gpu()

    assert [process.memory for process in reading.processes or ()] == [65 << 30]
    assert reading.memory is None
    assert "memory" in reading.withheld


def test_a_label_without_a_name_costs_only_its_line() -> None:
    line = 'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-2",a="",\x1f=""} 1\n'

    assert list(read_page(GOOD + line, 0.0).profiles) == [("GPU-1", None)]


def test_a_size_with_too_many_digits_is_refused() -> None:
    board = gpu("a", memory_total=f"{'9' * 400} MiB")

    with pytest.raises(DocumentError, match="memory_total"):
        parse(json.dumps({"name": "a", "node": {"name": "n"}, "gpus": [board]}))


def _answer(kind: str, metric: str, values: str) -> Response:
    series = f'{{"metric":{metric},{values}}}'
    text = f'{{"status":"success","data":{{"resultType":"{kind}","result":[{series}]}}}}'
    return Response(200, text.encode())
