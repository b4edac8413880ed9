"""The checkpoint of DRA drivers: what it says in each version, and that no other bytes do any harm."""

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sharing.base import Roots
from exporter.sharing.base.reading import UnusableError
from exporter.sharing.dra import checkpoint
from exporter.sharing.dra.checkpoint import Prepared, decode, read_checkpoint, with_known
from tests.core.sharing.build import roots_at

DRIVER = "gpu.nvidia.com"
CLAIM = "11111111-2222-3333-4444-555555555555"
GPU_UUID = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
MIG_UUID = "MIG-30d00c09-8a98-59b8-8c1a-1d64b4ec3ad2"


def device(name, share_id=None):
    """Return the driver's record of a device that it gave to the kubelet."""
    record = {"Requests": ["gpu"], "PoolName": "node-1", "DeviceName": name, "CDIDeviceIDs": [f"x={name}"]}
    return record if share_id is None else record | {"ShareID": share_id}


def claim(prepared=(), results=()):
    """Return one claim: prepared devices, and allocation results of the scheduler."""
    status = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    return {
        "checkpointState": "PrepareCompleted",
        "status": status,
        "preparedDevices": [{"devices": list(prepared), "configState": {}}],
    }


def result(name, driver=DRIVER, **more):
    """Return an allocation result of the scheduler."""
    return {"request": "gpu", "driver": driver, "pool": "node-1", "device": name} | more


def content(claims, version="v2"):
    """Return a checkpoint; v2 has the older version as well."""
    versions = {"v2": {"checksum": 1, "preparedClaims": claims}} if version == "v2" else {}
    return json.dumps({"checksum": 2, "v1": {"preparedClaims": claims}} | versions).encode()


def decoded(claims, version="v2", tmp="checkpoint.json"):
    """Return what a checkpoint says, which has nothing to object to."""
    checkpoint = decode(content(claims, version), DRIVER, tmp)
    assert checkpoint.problems == ()
    return checkpoint.prepared


GPU = {"gpu": {"info": {"uuid": GPU_UUID}, "device": device("gpu-0")}, "mig": None}
# cmd/gpu-kubelet-plugin/prepared.go: before 25.12 a MIG device had an info, since then what it is now.
OLD_MIG = {"gpu": None, "mig": {"info": {"uuid": MIG_UUID}, "device": device("gpu-0-mig-19-4-1")}}
NEW_MIG = {
    "gpu": None,
    "mig": {
        "concrete": {"parentMinor": 0, "giId": 7, "ciId": 0, "migUUID": MIG_UUID, "parentUUID": GPU_UUID},
        "device": device("gpu-0-mig-1g5gb-19-4"),
    },
}
# Project-HAMi/k8s-dra-driver cmd/hami-kubelet-plugin/prepared.go
HAMI = {"hami-gpu": {"info": {"uuid": GPU_UUID}, "device": device("hami-gpu-0", "share-a")}, "gpu": None}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("prepared", "name", "uuid", "share_id"),
    [
        pytest.param(GPU, "gpu-0", GPU_UUID, "", id="whole"),
        pytest.param(OLD_MIG, "gpu-0-mig-19-4-1", MIG_UUID, "", id="mig until 25.8"),
        pytest.param(NEW_MIG, "gpu-0-mig-1g5gb-19-4", MIG_UUID, "", id="mig since 25.12"),
        pytest.param(HAMI, "hami-gpu-0", GPU_UUID, "share-a", id="hami"),
    ],
)
def test_the_uuid_of_each_kind_of_device_in_each_release(version, prepared, name, uuid, share_id):
    checkpoint = decoded({CLAIM: claim([prepared])}, version)
    assert checkpoint == {(CLAIM, name): (Prepared(share_id=share_id, uuid=uuid),)}


def test_the_newer_version_counts():
    document = json.loads(content({CLAIM: claim([GPU])}))
    document["v1"]["preparedClaims"] = {}
    checkpoint = decode(json.dumps(document).encode(), DRIVER, "x").prepared
    assert set(checkpoint) == {(CLAIM, "gpu-0")}


def test_what_a_claim_takes_of_a_shared_device():
    results = [
        result("gpu-0", shareID="a", consumedCapacity={"memory": "10Gi", "shares": "1"}),
        result("gpu-0", shareID="b", consumedCapacity={"memory": "0", "cores": "40"}),
        result("gpu-0", driver="other.example.com", shareID="c", consumedCapacity={"memory": "1Gi"}),
    ]
    checkpoint = decode(content({CLAIM: claim([], results)}), DRIVER, "x")
    assert checkpoint.prepared == {
        (CLAIM, "gpu-0"): (
            Prepared(share_id="a", memory=10 << 30, request="gpu"),
            Prepared(share_id="b", compute=0.4, request="gpu"),
        )
    }
    assert checkpoint.find(CLAIM, "gpu-0", "b") == (Prepared(request="gpu", share_id="b", compute=0.4),)
    assert checkpoint.find(CLAIM, "gpu-0", "c") == ()
    assert [each.share_id for each in checkpoint.find(CLAIM, "gpu-0", "")] == ["a", "b"]


def test_without_a_share_id_all_shares_of_the_claim_are_meant():
    """Kubelets before 1.35 report no shares."""
    checkpoint = decode(content({CLAIM: claim([HAMI])}), DRIVER, "x")
    assert checkpoint.find(CLAIM, "hami-gpu-0", "") == (Prepared(share_id="share-a", uuid=GPU_UUID),)


def test_shares_of_a_device_that_was_prepared_without_one():
    results = [
        result("gpu-0", shareID="a", consumedCapacity={"memory": "4Gi"}),
        result("gpu-0", shareID="b", adminAccess=True),
    ]
    assert decoded({CLAIM: claim([GPU], results)}) == {
        (CLAIM, "gpu-0"): (
            Prepared(request="gpu", share_id="a", uuid=GPU_UUID, memory=4 << 30),
            Prepared(request="gpu", share_id="b", uuid=GPU_UUID, admin=True),
        )
    }


def test_a_share_without_an_id_is_the_one_without_an_id():
    results = [result("gpu-0", consumedCapacity={"memory": "1Gi"}), result("gpu-0", shareID="a")]
    checkpoint = decode(content({CLAIM: claim([], results)}), DRIVER, "x")
    assert checkpoint.find(CLAIM, "gpu-0", "") == (Prepared(request="gpu", memory=1 << 30),)


def test_admin_access():
    checkpoint = decoded({CLAIM: claim([GPU], [result("gpu-0", adminAccess=True)])})
    assert checkpoint == {(CLAIM, "gpu-0"): (Prepared(request="gpu", uuid=GPU_UUID, admin=True),)}


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        "text",
        {"status": []},
        {"status": {"allocation": {"devices": {"results": {}}}}},
        {"status": {"allocation": {"devices": {"results": [1]}}}},
        {"status": {"allocation": {"devices": {"results": [{"driver": DRIVER, "device": 1}]}}}},
        {"status": {"allocation": {"devices": {"results": [result("gpu-0", shareID={})]}}}},
        {"preparedDevices": {"devices": []}},
        {"preparedDevices": [{"devices": [{"gpu": "GPU-1"}]}]},
        {"preparedDevices": [{"devices": [{"gpu": {"info": {"uuid": 1}, "device": device("gpu-0")}}]}]},
    ],
)
def test_a_broken_claim_costs_itself(broken):
    checkpoint = decode(content({"broken": broken, CLAIM: claim([GPU])}), DRIVER, "/x")
    assert set(checkpoint.prepared) == {(CLAIM, "gpu-0")}
    assert [problem.about for problem in checkpoint.problems] == ["/x: broken"]


@pytest.mark.parametrize("uuid", ["", "GPU-", "../../etc", "GPU-" + "a" * 100, "GPU-a b"])
def test_an_invalid_uuid_is_not_prepared(uuid):
    assert decoded({CLAIM: claim([{"gpu": {"info": {"uuid": uuid}, "device": device("gpu-0")}}])}) == {}


@pytest.mark.parametrize("amount", ["-1", "1_000", "٣", "1e400", "nan", "9" * 5000, "1.5", " 1"])
def test_invalid_amounts_are_unknown(amount):
    results = [result("gpu-0", consumedCapacity={"memory": amount, "cores": amount})]
    assert decoded({CLAIM: claim([], results)}) == {(CLAIM, "gpu-0"): (Prepared(request="gpu"),)}


WHOLE = content({CLAIM: claim([GPU, NEW_MIG], [result("gpu-0", consumedCapacity={"memory": "1Gi"})])})
HOSTILE = [
    b"",
    b"null",
    b"[]",
    b'{"v1": {"preparedClaims": []}}',
    b'{"v2": {"preparedClaims": 5}}',
    b"[" * 100_000,
    b'{"v2":' * 50_000,
    b"\xff\xfe{",
    b'{"v1": {"preparedClaims": {"a": ' + b"9" * 5000 + b"}}}",
    WHOLE[:-1],
    WHOLE[: len(WHOLE) // 2],
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_file_that_is_not_a_checkpoint_is_a_problem(tmp_path, hostile):
    files = read_checkpoint(roots(tmp_path, hostile), DRIVER)
    assert files.prepared == {}
    assert len(files.problems) == 1
    assert "checkpoint.json" in files.problems[0].about


def test_a_checkpoint_without_claims_has_no_devices():
    for version in ("v1", "v2"):
        assert decoded({}, version) == {}
    assert decode(b'{"checksum": 0}', DRIVER, "x").prepared == {}
    assert decode(b'{"v1": null, "v2": {"preparedClaims": null}}', DRIVER, "x").prepared == {}


@given(st.binary(max_size=300))
def test_any_bytes(found: bytes):
    with contextlib.suppress(UnusableError):
        assert decode(found, DRIVER, "x").prepared == {}


WORDS = [
    *("status", "allocation", "devices", "results", "driver", "device", "consumedCapacity", "memory"),
    *("preparedDevices", "gpu", "info", "uuid", "adminAccess", "DeviceName", "concrete"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=25,
)


@given(JSON)
def test_any_claim(found):
    known = decode(content({"odd": found, CLAIM: claim([GPU])}), DRIVER, "x").prepared
    assert known[CLAIM, "gpu-0"] == (Prepared(uuid=GPU_UUID),)


def roots(tmp_path, written=None) -> Roots:
    """Return the roots of a node whose driver has written this."""
    folder = tmp_path / "plugins" / DRIVER
    if written is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint.json").write_bytes(written)
    names = ("hami", "hami_vnpu", "cgpu", "vcuda", "vgpu_manager", "mps", "run", "kubelet")
    return Roots(**dict.fromkeys(names, tmp_path))


def test_without_the_driver_there_is_no_problem(tmp_path):
    assert read_checkpoint(roots(tmp_path), DRIVER).problems == ()
    (tmp_path / "plugins").write_text("")
    assert read_checkpoint(roots(tmp_path), DRIVER).problems == ()


def test_a_checkpoint_from_the_disk(tmp_path):
    assert (CLAIM, "gpu-0") in read_checkpoint(roots(tmp_path, WHOLE), DRIVER).prepared


def test_a_file_that_is_too_large(tmp_path):
    where = roots(tmp_path, b"")
    os.truncate(tmp_path / "plugins" / DRIVER / "checkpoint.json", checkpoint.MOST_BYTES + 1)
    [problem] = read_checkpoint(where, DRIVER).problems
    assert problem.text == f"is longer than {checkpoint.MOST_BYTES} bytes"


def test_only_a_regular_file_is_read(tmp_path):
    where = roots(tmp_path, b"")
    path = tmp_path / "plugins" / DRIVER / "checkpoint.json"
    path.unlink()
    os.mkfifo(path)
    assert len(read_checkpoint(where, DRIVER).problems) == 1
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert len(read_checkpoint(where, DRIVER).problems) == 1


@pytest.mark.parametrize("now", [None, b"", b"[]", b'{"v2": 1}'])
def test_a_broken_or_missing_checkpoint_keeps_what_was_known_of_a_claim(tmp_path, now):
    path = tmp_path / "plugins" / DRIVER / "checkpoint.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content({CLAIM: claim([GPU], [result("gpu-0", adminAccess=True)])}))
    roots = roots_at(kubelet=tmp_path)
    before = read_checkpoint(roots, DRIVER)
    path.unlink()
    if now is not None:
        path.write_bytes(now)
    after = with_known(read_checkpoint(roots, DRIVER), before)
    assert [each.admin for each in after.find(CLAIM, "gpu-0", "")] == [True]
    assert len(after.problems) == (now is not None)


def test_a_checkpoint_without_claims_is_whole(tmp_path):
    before = decode(content({CLAIM: claim([GPU])}), DRIVER, tmp_path)
    assert set(before.held()) == {(CLAIM, "gpu-0")}
    assert with_known(decode(content({}), DRIVER, tmp_path), before).held() == {}
    broken = read_checkpoint(roots(tmp_path, b""), DRIVER)
    assert with_known(broken, before).held() == before.held()
    gone = read_checkpoint(roots_at(kubelet=tmp_path / "nowhere"), DRIVER)
    assert with_known(gone, before).held() == {}


def test_claims_that_left_a_readable_checkpoint_are_forgotten(tmp_path):
    before = decode(content({CLAIM: claim([GPU])}), DRIVER, tmp_path)
    now = decode(content({"other": claim([GPU])}), DRIVER, tmp_path)
    assert with_known(now, before) == now
    assert with_known(now, None) == now
