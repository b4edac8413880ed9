"""Which labels of a node ask for its driver."""

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
def test_labels_that_ask_for_the_driver(name, value) -> None:
    """The reason names the label and its value, whatever other labels there are."""
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
def test_labels_that_ask_for_nothing(name, value) -> None:
    """A label in another state, or one that is set so for good, opens no window."""
    assert reason_of({name: value}) == ""


def test_a_node_without_labels_asks_for_nothing() -> None:
    """There may be no label at all."""
    assert reason_of({}) == ""
