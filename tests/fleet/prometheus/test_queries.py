"""The queries for the past of a node, and the identity of a returned series."""

from exporter.fleet.prometheus.past_queries import expression, identity, quoted, summing

OWN = {"namespace": "ml", "pod": "nb-0", "container": "jupyter", "uuid": "GPU-1", "mig_uuid": "MIG-1"}
TARGET = {"namespace": "monitoring", "pod": "gpuslice-x", "container": "exporter"}


def test_each_step_is_the_mean_over_all_scrapes_of_a_device():
    assert expression("gpu", "power_watts", ["GPU-1", "GPU-0"], 60) == (
        'avg by (uuid) (avg_over_time(gpuslice_gpu_power_watts{uuid=~"GPU-0|GPU-1"}[60000ms]))'
    )
    assert expression("mig", "memory_used_bytes", ["GPU-0"], 0.5).startswith("avg by (uuid, mig_uuid) (")


def test_a_pod_is_selected_by_its_quoted_name():
    assert expression("container", "memory_used_bytes", ["GPU-0"], 60, 'a"b').endswith(
        r'(avg_over_time(gpuslice_container_memory_used_bytes{uuid=~"GPU-0",pod="a\"b"}[60000ms]))'
    )


def test_summed_fields_are_divided_by_the_time_in_which_the_gpu_was_seen():
    """Others are divided by the number of their own samples."""
    of = '{uuid=~"GPU-0"}[60000ms]'
    seen = f"on (uuid) group_left () sum by (uuid) (sum_over_time(gpuslice_gpu_up{of}))"
    rest = f"gpuslice_gpu_unattributed_memory_bytes{of}"
    assert summing("gpu", "unattributed_memory_bytes", ["GPU-0"], 60) == (
        f"sum by (uuid) (sum_over_time({rest})) / {seen}"
    )
    power = f"_over_time(gpuslice_gpu_power_watts{of})"
    assert summing("gpu", "power_watts", ["GPU-0"], 60) == (
        f"sum by (uuid) (sum{power}) / sum by (uuid) (count{power})"
    )


def test_names_are_escaped_in_patterns_and_strings():
    assert quoted('a"b\\c\nd') == r'"a\"b\\c\nd"'
    assert r'uuid=~"GPU-a\\.\\*\\|b"' in expression("gpu", "power_watts", ["GPU-a.*|b"], 60)


def test_the_identity_of_a_holder_is_its_own_labels():
    assert identity("container", OWN | {"job": "a", "instance": "b"}) == OWN
    unnamed = {name: OWN[name] for name in OWN if name != "container"}
    assert identity("container", unnamed) == OWN | {"container": ""}


def test_the_identity_of_a_device_has_no_labels_of_the_scrape_target():
    labels = TARGET | {"uuid": "GPU-1"}
    assert identity("gpu", labels) == {"uuid": "GPU-1"}
    assert identity("mig", labels | {"mig_uuid": "M"}) == {"uuid": "GPU-1", "mig_uuid": "M"}
