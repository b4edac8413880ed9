"""The text of given records: units, labels, order, and what is absent."""

from dataclasses import replace

from exporter.exposition import Exposition, Format
from exporter.exposition.lines import escape_help, join_labels, openmetrics_header, text_header
from exporter.metrics import FAMILIES, Family
from exporter.model import Bar1, CollectorHealth, SliceCount

NODE = 'node="gpu-node-07"'
SHARED = f'{NODE},gpu="0",uuid="GPU-shared"'
CUT = f'{NODE},gpu="1",uuid="GPU-mig"'
NOTEBOOK = f'{SHARED},namespace="ml",pod="nb-li",container="main"'
TRAIN = f'{CUT},mig_uuid="MIG-a",namespace="ml",pod="train-0",container="main"'


def _lines(snapshot, prefix: str) -> list[str]:
    page = Exposition().page(snapshot).body(Format.TEXT).decode()
    return [line for line in page.split("\n") if line.startswith(prefix)]


SAMPLES = [
    f"gpuslice_gpu_utilization_ratio{{{SHARED}}} 0.37",
    f"gpuslice_gpu_memory_copy_utilization_ratio{{{SHARED}}} 0.07",
    f"gpuslice_gpu_power_watts{{{SHARED}}} 61.234",
    f"gpuslice_gpu_energy_joules_total{{{SHARED}}} 123456.789",
    f'gpuslice_gpu_clock_hertz{{{SHARED},clock="sm"}} 1410000000',
    f"gpuslice_gpu_fan_ratio{{{SHARED}}} 0.3",
    f"gpuslice_gpu_memory_total_bytes{{{SHARED}}} 42949672960",
    f'gpuslice_gpu_slices{{{SHARED},resource="nvidia.com/gpu.shared"}} 10',
    f'gpuslice_gpu_slices_allocated{{{SHARED},resource="nvidia.com/gpu.shared"}} 2',
    f'gpuslice_gpu_mig_compute_slices{{{CUT},state="free"}} 1',
    f'gpuslice_gpu_mig_memory_slices{{{CUT},state="free"}} 3',
    f"gpuslice_gpu_mig_adjacent_free_memory_slices{{{CUT}}} 2",
    f'gpuslice_gpu_compute_mode_info{{{CUT},compute_mode="default"}} 1',
    f'gpuslice_mig_info{{{CUT},mig_uuid="MIG-a",profile="3g.20gb",gi="1",ci="0"}} 1',
    f"gpuslice_container_slices{{{NOTEBOOK}}} 1",
    f"gpuslice_container_processes{{{TRAIN}}} 1",
    f"gpuslice_container_compute_used_ratio{{{NOTEBOOK}}} 0.0",
    f'gpuslice_attribution_inconsistent_total{{{NODE},uuid="GPU-shared",quantity="compute"}} 1',
    f'gpuslice_nvml_errors_total{{{NODE},call="nvmlInit",error="Timeout"}} 1',
    f'gpuslice_allocations_unresolved{{{NODE},resource="nvidia.com/gpu"}} 1',
    f'gpuslice_collector_errors_total{{{NODE},collector="podresources",reason="timeout"}} 3',
    f"gpuslice_process_attribution_available{{{NODE}}} 1",
    f"gpuslice_node_gpus{{{NODE}}} 2",
    # Costs, which the golden pages do not have.
    f'gpuslice_nvml_calls_total{{{NODE},group="power"}} 10',
    f"gpuslice_nvml_unsupported{{{SHARED}}} 3",
]


def test_samples_are_in_base_units_with_the_labels_of_their_level(full) -> None:
    page = Exposition().page(full).body(Format.TEXT).decode().split("\n")

    assert [sample for sample in SAMPLES if page.count(sample) != 1] == []


def test_unknown_labels_of_an_info_series_are_left_out(bare) -> None:
    assert _lines(bare, "gpuslice_gpu_info") == [
        'gpuslice_gpu_info{node="node",gpu="0",uuid="GPU-x",vendor="nvidia",sharing="unknown"} 1'
    ]


def test_memory_shared_by_compute_instances_is_not_printed(full, values) -> None:
    """A sum over MIG devices stays right."""
    window = Bar1(total=256, used=2)
    devices = [replace(row, reading=replace(row.reading, bar1=window)) for row in full.migs[:2]]
    shared = replace(devices[0], reading=replace(devices[0].reading, memory_shared=True))

    samples = values(replace(full, migs=(shared, devices[1])))

    memory = [f"memory_{quantity}" for quantity in ("total", "used", "free", "reserved")]
    for quantity in (*memory, "bar1_total", "bar1_used"):
        (labels,) = samples[f"gpuslice_mig_{quantity}_bytes"]
        assert ("mig_uuid", "MIG-b") in labels


def test_without_a_count_of_offered_devices_only_allocated_slices_are_printed(full, values) -> None:
    gpu = replace(full.gpus[0], slices=(SliceCount("nvidia.com/gpu", None, 2),))

    samples = values(replace(full, gpus=(gpu,)))

    assert "gpuslice_gpu_slices" not in samples
    assert list(samples["gpuslice_gpu_slices_allocated"].values()) == [2]


def test_families_are_in_the_order_of_the_table_and_samples_in_that_of_the_rows(full) -> None:
    page = Exposition().page(full).body(Format.TEXT).decode()
    names = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE gpuslice_")]
    table = [family.name for family in FAMILIES]

    assert [name for name in table if name in names] == [name for name in names if name in table]
    assert [line.split('pod="')[1].split('"')[0] for line in _lines(full, "gpuslice_container_slices")] == [
        "nb-anna",
        "nb-li",
        "train-0",
    ]


def test_of_two_rows_with_the_same_series_the_first_is_printed(full, values) -> None:
    twice = replace(
        full,
        containers=(full.containers[0], replace(full.containers[0], memory_used=1)),
        collectors=(CollectorHealth(name="nvml", success=True), CollectorHealth(name="nvml", success=False)),
        gpus=(replace(full.gpus[0], slices=(SliceCount("r", 4, 1), SliceCount("r", 9, 1))), full.gpus[0]),
    )

    samples = values(twice)  # the reader of pages refuses a duplicate series

    assert [full.containers[0].memory_used] == list(samples["gpuslice_container_memory_used_bytes"].values())
    assert list(samples["gpuslice_collector_success"].values()) == [1]
    assert list(samples["gpuslice_gpu_slices"].values()) == [4]


def test_numbers_are_exact_and_special_values_are_those_of_prometheus(full) -> None:
    numbers = [
        (0, "0"),
        (10**20, "100000000000000000000"),
        (0.37, "0.37"),
        (1e-9, "1e-09"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (True, "1"),
        (False, "0"),
    ]
    for value, text in numbers:
        row = replace(full.containers[0], compute_used=value)
        (line,) = _lines(replace(full, containers=(row,)), "gpuslice_container_compute_used_ratio{")
        assert line.endswith(f"}} {text}")


def test_help_texts_are_escaped_for_their_format() -> None:
    """Backslash and newline in both formats, quotes in OpenMetrics only."""
    assert escape_help('a\\b\nc"d', openmetrics=False) == r'a\\b\nc"d'
    assert escape_help('a\\b\nc"d', openmetrics=True) == r"a\\b\nc\"d"
    assert escape_help("\udc80", openmetrics=True) == "\ufffd"


def test_headers_have_the_name_and_type_of_their_format() -> None:
    """OpenMetrics names a counter without _total, and calls one without that suffix unknown."""
    counter = Family("a_total", "counter", "gpu", "Help.", int)
    other = Family("DCGM_A", "counter", "dcgm", "Help.", int)

    assert text_header(counter) == b"# HELP a_total Help.\n# TYPE a_total counter\n"
    assert openmetrics_header(counter) == b"# HELP a Help.\n# TYPE a counter\n"
    assert text_header(other) == b"# HELP DCGM_A Help.\n# TYPE DCGM_A counter\n"
    assert openmetrics_header(other) == b"# HELP DCGM_A Help.\n# TYPE DCGM_A unknown\n"


def test_empty_labels_do_not_change_a_label_set() -> None:
    assert join_labels('{a="1"}', "") == '{a="1"}'
    assert join_labels('{a="1"}', 'b="2"') == '{a="1",b="2"}'
    assert join_labels("", 'b="2"') == '{b="2"}'
    assert join_labels("", "") == ""
