"""What fuzzing found, told as what now holds."""

import json

import pytest

from exporter.config.parse import SettingsError, read_yaml
from exporter.dcgm_scrape.page import read_page
from exporter.demo.scenario.catalog import parse
from exporter.demo.scenario.codec import ScenarioError
from exporter.model import Allocations, ClaimedDevice, ContainerRef, DeviceUse
from exporter.prometheus.answers import Answer, PrometheusError, read_matrix, read_vector
from exporter.sharing.base.view import View
from exporter.sharing.dra import Dra
from exporter.sharing.gpu_manager import decode_checkpoint
from exporter.web.auth.yaml_document import DocumentError, read_document
from exporter.workloads.processes import boot_seconds
from tests.fuzz.target import examine
from tests.fuzz.test_targets import BY_NAME
from tests.hardware.amd.tree import GPU_ID, Tree
from tests.hardware.making import gpu

GOOD = 'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-1"} 0.25\n'


@pytest.mark.parametrize("escape", [r"\UFFFFFFFF", r"\U00110000"])
def test_an_escape_beyond_unicode_is_no_yaml(escape, tmp_path) -> None:
    """A character that does not exist is refused as any other mistake in a file, and the file is named."""
    path = tmp_path / "config.yaml"
    path.write_text(f'listen: "{escape}"\n', encoding="ascii")

    with pytest.raises(SettingsError, match=r"config.yaml: not valid YAML"):
        list(read_yaml(path))
    with pytest.raises(DocumentError, match="not valid YAML"):
        read_document(path.read_bytes())


@pytest.mark.parametrize(
    "line",
    [
        f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-2",GPU_I_ID="{"9" * 5000}"}} 1\n',
        'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-2",GPU_I_ID="٣"} 1\n',
        f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-2"}} 1 {"9" * 400}\n',
    ],
    ids=["instance-without-end", "instance-in-other-digits", "time-without-end"],
)
def test_a_number_without_end_costs_its_line(line) -> None:
    """A line of a dcgm-exporter with a number that nothing has leaves the lines beside it as they are."""
    reading = read_page(GOOD + line, 0.0)

    assert {device: profile.active for device, profile in reading.profiles.items()} == {
        ("GPU-1", None): {"sm": 0.25}
    }


@pytest.mark.parametrize("metric", ["null", "[]", '{"uuid":1}', '{"uuid":null}'])
def test_labels_that_are_no_texts_are_no_answer(metric) -> None:
    """What does not have labels as Prometheus has them is told as not being one, before a page draws it."""
    for kind, read, values in (
        ("vector", read_vector, '"value":[1,"1"]'),
        ("matrix", read_matrix, '"values":[[1,"1"]]'),
    ):
        with pytest.raises(PrometheusError, match="does not answer as Prometheus does"):
            read(_answer(kind, metric, values))


def test_a_number_that_no_sample_has_is_no_answer() -> None:
    """JSON can have numbers of any length, of which the longest are no samples."""
    with pytest.raises(PrometheusError, match="does not answer as Prometheus does"):
        read_vector(_answer("vector", "{}", f'"value":[1,1{"0" * 400}]'))


@pytest.mark.parametrize("text", ["-112.5 3.0", "nan 1", "inf 1"])
def test_a_boot_clock_that_cannot_be_is_not_known(text, tmp_path) -> None:
    """Before the start of the machine nothing has run, and no process is judged by such a clock."""
    (tmp_path / "uptime").write_text(text, encoding="ascii")

    assert boot_seconds(tmp_path) is None


def test_a_truth_value_is_no_amount() -> None:
    """JSON's true is not a limit of one byte, nor of one percent."""
    entry = '{"Devices":["/dev/nvidia0"],"Cores":true,"Memory":true}'
    given, wrong = decode_checkpoint(f'{{"PodGPUMapping":{{"u":{{"main":{entry}}}}}}}')

    assert (given, wrong) == ({("u", "main"): (DeviceUse(device="0"),)}, [])


def test_what_cannot_be_read_is_told_shortly() -> None:
    """A name of a claimed device that is as long as an answer can be does not fill the log."""
    holder = ContainerRef("a", "b", "c")
    claim = ClaimedDevice(holder, Dra.driver, "pool", "x" * 5000)
    view = View((), Allocations(allocated=(), offered=(), api_version="v1", read_at=0.0, claims=(claim,)))
    Dra(view).grants()

    assert [len(problem.about) for problem in view.problems] == [len("a/b: ") + 100]


@pytest.mark.parametrize("name", ["mem_info_vis_vram_total", "pcie_replay_count", "hwmon/hwmon6/freq1_input"])
async def test_less_than_nothing_of_a_card_says_nothing(name, tmp_path) -> None:
    """A file of sysfs with a number below zero where there can be none costs its own reading only."""
    tree = Tree(tmp_path)
    tree.write(tree.card() / name, "-1")
    gpu = await tree.gpu()

    told = {
        "mem_info_vis_vram_total": gpu.bar1,
        "pcie_replay_count": gpu.pcie_replays,
        "hwmon/hwmon6/freq1_input": gpu.clocks_megahertz.get("sm"),
    }
    assert [other for other, value in told.items() if value is None] == [name]


@pytest.mark.parametrize("text", ["-1", "much"])
async def test_a_process_with_less_than_nothing_leaves_the_list_unknown(text, tmp_path) -> None:
    """What a process has is not taken to be nothing where the kernel says something else than an amount."""
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
def test_a_list_that_is_longer_than_its_room_is_not_known(target, content) -> None:
    """A driver that says of more records than it was given room for is not believed, and costs its list."""
    examine(BY_NAME[target], content)


def test_a_license_that_ends_in_a_year_beyond_all_has_no_end() -> None:
    """A year of a license that is no year is not known; the license is."""
    examine(BY_NAME["nvml-vgpus"], bytes(22) + b"\x80\x14\x01\x04" + b"\xff" * 4)


@pytest.mark.parametrize("memory", [65 << 30, (1 << 64) - 1])
async def test_a_process_with_more_than_the_card_says_nothing(memory, tmp_path) -> None:
    """What KFD says that a process has of a card is not told where it is more than there is, as with NVML."""
    tree = Tree(tmp_path)
    tree.card()
    tree.node()
    tree.process(41, memory)

    assert [each.memory for each in (await tree.gpu()).processes or ()] == [None]
    tree.write(tree.kfd / "topology/nodes/1/mem_banks/0/properties", "heap_type 1")
    assert [each.memory for each in (await tree.gpu()).processes or ()] == [None]


def test_a_label_without_a_name_costs_its_line() -> None:
    """A line of a dcgm-exporter whose label has no name leaves the lines beside it as they are."""
    line = 'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-2",a="",\x1f=""} 1\n'

    assert list(read_page(GOOD + line, 0.0).profiles) == [("GPU-1", None)]


def test_a_size_without_end_is_no_scenario() -> None:
    """A size with more digits than a number can have is refused as any other mistake in a scenario."""
    board = gpu("a", memory_total=f"{'9' * 400} MiB")

    with pytest.raises(ScenarioError, match="memory_total"):
        parse(json.dumps({"name": "a", "node": {"name": "n"}, "gpus": [board]}))


def _answer(kind: str, metric: str, values: str) -> Answer:
    found = f'{{"metric":{metric},{values}}}'
    text = f'{{"status":"success","data":{{"resultType":"{kind}","result":[{found}]}}}}'
    return Answer(200, text.encode())
