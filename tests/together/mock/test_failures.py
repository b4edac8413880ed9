"""GPUs of NVIDIA's mock driver that fail: one bad GPU costs itself only, and its error is reported."""

from pathlib import Path

import pytest

from tests.core.commands.program import serving
from tests.together.mock.nodes import PROFILES, Series, on, parsed, profile, read, written
from tests.waiting import wait_until

BAD = 2


def _failing(path: Path, folder: Path, failure: dict[str, object]) -> tuple[Path, list[str]]:
    """Return a profile in which one GPU fails, and the UUIDs of all."""
    config = profile(path)
    config["devices"][BAD]["failure"] = failure
    return written(config, folder), [device["uuid"] for device in config["devices"]]


def _up(series: Series) -> dict[str, float]:
    return {
        dict(labels)["uuid"]: value for (name, labels), value in series.items() if name == "gpuslice_gpu_up"
    }


def _of_gpu(series: Series, uuid: str) -> set[str]:
    return {name for name, labels in series if ("uuid", uuid) in labels}


@pytest.mark.parametrize("mode", ["lost", "fallen_off_bus"])
@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_lost_gpu_costs_only_itself(path: Path, mode: str, tmp_path: Path) -> None:
    """The others have all the series of a healthy node."""
    config, uuids = _failing(path, tmp_path, {"mode": mode, "after_calls": 20})
    healthy, series = read(path), read(config)
    for uuid in uuids[:BAD] + uuids[BAD + 1 :]:
        assert _up(series)[uuid] == 1
        assert _of_gpu(healthy, uuid) == _of_gpu(series, uuid)
    assert _up(series).get(uuids[BAD], 0) == 0


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_an_xid_is_counted_for_its_gpu(path: Path, tmp_path: Path) -> None:
    failure = {"mode": "ecc_uncorrectable", "after_calls": 300, "xid": {"code": 64}}
    config, uuids = _failing(path, tmp_path, failure)
    words = ("serve", "--poll-interval", "1s")
    with serving(*words, **on(config)) as served:

        def counted() -> dict[str, float]:
            counts = {
                dict(labels)["uuid"]: value
                for (name, labels), value in parsed(served.get("metrics")).items()
                if name == "gpuslice_gpu_xid_code_errors_total" and ("xid", "64") in labels
            }
            return counts if any(counts.values()) else {}

        counts = wait_until(counted)
    assert counts == {uuid: float(uuid == uuids[BAD]) for uuid in uuids}
