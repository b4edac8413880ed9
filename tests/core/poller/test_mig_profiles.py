"""The MIG profiles of a node: once for each model, from the GPU whose driver reports them."""

import pytest

from exporter.config import load_settings
from exporter.model import GpuIdentity, GpuReading
from exporter.model.mig_profiles import MigProfile, MigProfiles
from exporter.poll.snapshot_builder import PollResult, SnapshotBuilder

DRIVER = MigProfiles("driver", (MigProfile(name="1g.12gb", memory=2),))
OTHER = MigProfiles("driver", (MigProfile(name="1g.12gb", memory=3),))
TABLE = MigProfiles("table", (MigProfile(name="1g.12gb", memory=1),))


def profiles(*gpus):
    """Return the profiles in the snapshot of GPUs, each given by its model and its own profiles."""
    readings = tuple(
        GpuReading(
            identity=GpuIdentity(uuid=f"GPU-{index}", index=index, model=model), mig_profiles=own, sweep=1
        )
        for index, (model, own) in enumerate(gpus)
    )
    builder = SnapshotBuilder(load_settings({}, {}), demo=False)
    result = PollResult(gpus=readings)
    return builder.snapshot(result, (), 0.0, 0.0).node.mig_profiles


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ((DRIVER, OTHER), DRIVER),
        ((None, TABLE, DRIVER, OTHER), DRIVER),
        ((TABLE, None), TABLE),
        ((DRIVER, TABLE), DRIVER),
    ],
)
def test_the_first_driver_that_reports_them_wins_over_the_table(own, found):
    """GPUs of one model have the same profiles, so those of one of them are enough."""
    assert profiles(*(("H100", each) for each in own)) == {"H100": found}


def test_each_model_has_its_own():
    """A model without a MIG mode has none."""
    assert profiles(("H100", DRIVER), ("L4", None), ("A100", TABLE)) == {"H100": DRIVER, "A100": TABLE}
