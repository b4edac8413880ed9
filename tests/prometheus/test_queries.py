"""What is asked of a Prometheus for the past, and whose a series is."""

from exporter.prometheus.past_queries import expression, identity, quoted, summing

OWN = {"namespace": "ml", "pod": "nb-0", "container": "jupyter", "uuid": "GPU-1", "mig_uuid": "MIG-1"}
TARGET = {"namespace": "monitoring", "pod": "gpuslice-x", "container": "exporter"}


def test_a_mean_of_each_step():
    """Scrapes of the same thing are put together by the server, whatever else they carry."""
    assert expression("gpu", "power_watts", ["GPU-1", "GPU-0"], 60) == (
        'avg by (uuid) (avg_over_time(gpuslice_gpu_power_watts{uuid=~"GPU-0|GPU-1"}[60000ms]))'
    )
    assert expression("mig", "memory_used_bytes", ["GPU-0"], 0.5).startswith("avg by (uuid, mig_uuid) (")


def test_one_pod():
    """Of a holder only its pod is asked."""
    assert expression("container", "memory_used_bytes", ["GPU-0"], 60, 'a"b').endswith(
        r'(avg_over_time(gpuslice_container_memory_used_bytes{uuid=~"GPU-0",pod="a\"b"}[60000ms]))'
    )


def test_parts_of_each_step():
    """What is added up is divided by the time in which the GPU was known, all else by its own."""
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


def test_names_are_no_patterns():
    """What a name has of signs stands for itself, in the pattern and in the string around it."""
    assert quoted('a"b\\c\nd') == r'"a\"b\\c\nd"'
    assert r'uuid=~"GPU-a\\.\\*\\|b"' in expression("gpu", "power_watts", ["GPU-a.*|b"], 60)


def test_whose_a_series_is():
    """The labels of the series are the holder; one that is not known is missing."""
    assert identity("container", OWN | {"job": "a", "instance": "b"}) == OWN
    unnamed = {name: OWN[name] for name in OWN if name != "container"}
    assert identity("container", unnamed) == OWN | {"container": ""}


def test_devices_have_no_pods():
    """The labels that a scrape sets on a GPU are not its identity."""
    labels = TARGET | {"uuid": "GPU-1"}
    assert identity("gpu", labels) == {"uuid": "GPU-1"}
    assert identity("mig", labels | {"mig_uuid": "M"}) == {"uuid": "GPU-1", "mig_uuid": "M"}
