"""The spellings of device ids: one table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sharing.base.inventory import DeviceId, parse_device_id

UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
GPU = f"GPU-{UUID}"
MIG = "MIG-30d00c09-8a98-59b8-8c1a-1d64b4ec3ad2"
LEGACY = f"MIG-{GPU}/3/0"

# What an id names; None is a spelling that no plugin of NVIDIA or GKE uses.
SPELLINGS: dict[str, DeviceId | None] = {
    # NVIDIA: whole devices.
    GPU: DeviceId(uuid=GPU),
    MIG: DeviceId(uuid=MIG),
    LEGACY: DeviceId(uuid=LEGACY, parent=GPU, gi=3, ci=0),
    f"MIG-{GPU}/10/12": DeviceId(uuid=f"MIG-{GPU}/10/12", parent=GPU, gi=10, ci=12),
    # NVIDIA: replicas of them.
    f"{GPU}::0": DeviceId(uuid=GPU, replica="0"),
    f"{GPU}::47": DeviceId(uuid=GPU, replica="47"),
    "GPU-0::1": DeviceId(uuid="GPU-0", replica="1"),
    f"{MIG}::7": DeviceId(uuid=MIG, replica="7"),
    f"{LEGACY}::2": DeviceId(uuid=LEGACY, parent=GPU, gi=3, ci=0, replica="2"),
    # A UUID without its prefix; that of a mediated device names no GPU that is here.
    UUID: DeviceId(uuid=GPU),
    f"{UUID}::2": DeviceId(uuid=GPU, replica="2"),
    "aa618089-8b16-4d01-a136-25a0f3c73123": DeviceId(uuid="GPU-aa618089-8b16-4d01-a136-25a0f3c73123"),
    # NVIDIA on Jetson and in WSL: the GPU of the node.
    "tegra": DeviceId(the_gpu=True),
    "tegra::3": DeviceId(the_gpu=True, replica="3"),
    "all": DeviceId(the_gpu=True),
    "all::0": DeviceId(the_gpu=True, replica="0"),
    # GKE.
    "nvidia0": DeviceId(minor=0),
    "nvidia15": DeviceId(minor=15),
    "nvidia0/gi1": DeviceId(minor=0, gi=1),
    "nvidia0/vgpu0": DeviceId(minor=0, replica="0"),
    "nvidia3/gi13/vgpu2": DeviceId(minor=3, gi=13, replica="2"),
    # HAMi, gpushare and nvshare: no device of this node has such a UUID, and none is guessed.
    f"{GPU}-3": DeviceId(uuid=f"{GPU}-3"),
    f"{GPU}_-_5": DeviceId(uuid=f"{GPU}_-_5"),
    f"{GPU}__5": DeviceId(uuid=f"{GPU}__5"),
    # A mark without a number behind it, or with something else there; nos writes gigabytes between two.
    **dict.fromkeys(f"{GPU}::{rest}" for rest in ("", "x", "-1", "1 ", "1.5", "٣", "10::1", ":1")),
    **dict.fromkeys(("::1", "::", f"{MIG}::1::2")),
    # Broken triples.
    **dict.fromkeys(f"MIG-{GPU}/{rest}" for rest in ("3", "a/b", "3/", "/0", "3/0/1", "3/0\n", "٣/0")),
    **dict.fromkeys(("MIG-GPU-/3/0", "MIG-/3/0", f"{GPU}/3/0")),
    # Nearly GKE's.
    **dict.fromkeys(
        ("nvidia", "nvidiactl", "nvidia-uvm", "nvidia0\n", "nvidia0/", "nvidia0/gi", "nvidia0/vgpu")
    ),
    **dict.fromkeys(
        ("nvidia0/vgpu1/gi1", "nvidia0/gi1/ci0", "nvidia0::1", "nvidia٣", "/dev/nvidia0", "Nvidia0")
    ),
    # Others.
    **dict.fromkeys(("0000:19:00.0", "00000000:07:00.0", "amdgpu_xcp_3", "card0-1", "2-17")),
    **dict.fromkeys(("tencent.com/vcuda-core-3", "ALL", "", " ", f" {GPU}", f"gpu-{UUID}")),
    **dict.fromkeys(("Tegra", "tegra0", "tegra::", "tegra::x", "all::1::2", "all::8:1", "tegra/gi1")),
}


@pytest.mark.parametrize(("text", "named"), SPELLINGS.items(), ids=[repr(text) for text in SPELLINGS])
def test_spelling(text: str, named: DeviceId | None):
    assert parse_device_id(text) == named


@pytest.mark.parametrize("text", ["nvidia{}", "nvidia0/gi{}", f"MIG-{GPU}/{{}}/0", f"MIG-{GPU}/0/{{}}"])
def test_a_number_too_long_to_read_names_nothing(text: str):
    assert parse_device_id(text.format("1" * 5000)) is None


@given(
    st.one_of(
        st.text(),
        st.from_regex(r"(MIG-)?(GPU-)?[0-9a-f-]{0,40}(/[0-9]+){0,3}(::[0-9]*){0,2}"),
        st.from_regex(r"nvidia[0-9]*(/(gi|vgpu)?[0-9]*){0,3}"),
    )
)
def test_any_text_is_read_or_refused(text: str):
    named = parse_device_id(text)
    if named is not None:
        assert bool(named.uuid) + (named.minor is not None) + named.the_gpu == 1
        assert (named.ci is not None) <= (named.gi is not None)
        assert named.replica == "" or named.replica.isascii()
