"""Labels of a node that request its driver."""

import pytest

from exporter.poll.release_window import reason_of

DEPLOY = "nvidia.com/gpu.deploy."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia.com/mig.config.state", "pending"),
        ("nvidia.com/mig.config.state", "rebooting"),
        (f"{DEPLOY}dcgm-exporter", "paused-for-mig-change"),
        (f"{DEPLOY}dcgm-exporter", "paused-for-driver-upgrade"),
        (f"{DEPLOY}dcgm-exporter-dra", "paused-for-driver-upgrade"),
        (f"{DEPLOY}sandbox-device-plugin", "paused-for-vgpu-change"),
        (f"{DEPLOY}client", "paused-for-driver-upgrade"),
        (f"{DEPLOY}client", "false"),
    ],
)
def test_a_label_that_requests_the_driver(name, value) -> None:
    """The reason names the label and its value; other labels do not matter."""
    labels = {"kubernetes.io/os": "linux", name: value, "nvidia.com/gpu.present": "true"}

    assert reason_of(labels) == f"{name} is {value}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia.com/mig.config.state", "success"),
        ("nvidia.com/mig.config.state", "failed"),
        ("nvidia.com/mig.config", "all-1g.5gb"),
        ("nvidia.com/vgpu.config.state", "success"),
        (f"{DEPLOY}client", "true"),
        (f"{DEPLOY}dcgm-exporter", "true"),
        (f"{DEPLOY}dcgm-exporter", "false"),
        ("example.com/gpu.deploy.client", "paused-for-lunch"),
    ],
)
def test_a_label_that_does_not_request_the_driver(name, value) -> None:
    """A label in another state, or with a permanent value."""
    assert reason_of({name: value}) == ""


def test_a_node_without_labels_requests_nothing() -> None:
    assert reason_of({}) == ""
