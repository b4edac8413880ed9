"""The one rate that is made out of a counter: traffic over NVLink."""

from dataclasses import replace

import pytest

from exporter.model import GpuIdentity, GpuReading
from exporter.poll.several_readings import NvlinkRates, nvlink_bytes_per_second


def gpu(at: float, sent: int | None, received: int | None, *, uuid: str = "GPU-a") -> GpuReading:
    """Return a reading at a time of the monotonic clock."""
    traffic = {"nvlink_transmit": sent, "nvlink_receive": received}
    return GpuReading(
        identity=GpuIdentity(uuid=uuid, index=0),
        read_monotonic=at,
        traffic_bytes={name: count for name, count in traffic.items() if count is not None},
    )


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        (gpu(10, 1000, 500), gpu(12, 3000, 1500), 1500.0),
        (gpu(10, 1000, 500), gpu(20, 1000, 500), 0.0),
        (gpu(10, 1000, 500), gpu(10, 3000, 1500), None),
        (gpu(10, 1000, 500), gpu(12, 900, 1500), None),
        (gpu(10, 1000, 500), gpu(12, 3000, 400), None),
        (gpu(10, 1000, None), gpu(12, 3000, 1500), None),
        (gpu(10, 1000, 500), gpu(12, None, 1500), None),
    ],
    ids=["both directions", "idle", "no time", "sent fell", "received fell", "new counter", "lost counter"],
)
def test_a_rate_is_the_difference_of_both_directions_over_the_time(before, now, rate) -> None:
    """A missing counter or one that fell has no rate; an unchanged one has a rate of zero."""
    assert nvlink_bytes_per_second(before, now) == rate


def test_a_rate_is_kept_until_the_next_reading_and_averaged_over_a_gap() -> None:
    rates = NvlinkRates()

    assert rates.advance([gpu(10, 0, 0)]) == {}
    assert rates.advance([gpu(20, 100, 0)]) == {"GPU-a": 10.0}
    assert rates.advance([gpu(20, 100, 0)]) == {"GPU-a": 10.0}
    assert rates.advance([gpu(40, 700, 0)]) == {"GPU-a": 30.0}


def test_a_gpu_that_was_lost_has_no_rate_over_the_gap() -> None:
    """Other GPUs keep their rates."""
    rates = NvlinkRates()
    rates.advance([gpu(10, 0, 0), gpu(10, 0, 0, uuid="GPU-b")])

    lost = rates.advance([replace(gpu(20, 100, 0), up=False), gpu(20, 50, 0, uuid="GPU-b")])
    back = rates.advance([gpu(30, 200, 0), gpu(30, 100, 0, uuid="GPU-b")])

    assert lost == {"GPU-b": 5.0}
    assert back == {"GPU-b": 5.0}
