"""Which AMD GPUs there are, and their identities."""

import pytest

from exporter.model import GpuIdentity
from tests.core.hardware.amd.tree import ADDRESS, BOARD, UUID, Tree


async def test_a_node_without_gpus_is_no_error(tree: Tree) -> None:
    reading = await tree.read()
    assert (reading.gpus, reading.gpu_count, reading.errors) == ((), 0, {})
    assert reading.driver.driver_version is None


async def test_the_identity_of_a_card(tree: Tree) -> None:
    """The UUID is the unique id as ROCm writes it."""
    tree.card()
    tree.node()
    tree.write("module/amdgpu/version", "6.10.5")
    reading = await tree.read()
    assert reading.driver.driver_version == "6.10.5"
    assert reading.gpus[0].identity == GpuIdentity(
        uuid=UUID,
        index=0,
        model="AMD INSTINCT MI210",
        pci_bus_id="00000000:19:00.0",
        vendor="amd",
        serial="692214000581",
        architecture="gfx90a",
        vbios="113-D67301-059",
        render_minor=128,
    )


@pytest.mark.parametrize(
    ("version", "architecture"),
    [(90402, "gfx942"), (90500, "gfx950"), (110001, "gfx1101"), (100300, "gfx1030"), (0, None)],
)
async def test_the_architecture_is_written_as_by_compilers(
    tree: Tree, version: int, architecture: str | None
) -> None:
    tree.card()
    tree.node(gfx_target_version=version)
    assert (await tree.gpu()).identity.architecture == architecture


def integrated(form: int) -> bytes:
    """Return the metrics table of integrated graphics, of a format."""
    return bytes((128, 0, form, 1)) + b"\xff" * 124


@pytest.mark.parametrize(
    ("changes", "uuid", "model"),
    [
        ({"unique_id": None}, f"GPU-{ADDRESS}", BOARD["product_name"]),
        ({"unique_id": "0"}, f"GPU-{ADDRESS}", BOARD["product_name"]),
        ({"unique_id": "0000000000000000"}, f"GPU-{ADDRESS}", BOARD["product_name"]),
        ({"unique_id": "none"}, f"GPU-{ADDRESS}", BOARD["product_name"]),
        # ROCm writes leading zeros.
        ({"unique_id": "0x1c3d5e"}, "GPU-00000000001c3d5e", BOARD["product_name"]),
        ({"product_name": None}, UUID, "AMD 0x740f"),
        ({"product_name": ""}, UUID, "AMD 0x740f"),
        ({"product_name": None, "device": None}, UUID, "AMD GPU"),
        ({"product_name": None, "gpu_metrics": integrated(1)}, UUID, "AMD 0x740f"),
        ({"product_name": None, "gpu_metrics": integrated(2)}, UUID, "AMD integrated graphics 0x740f"),
    ],
)
async def test_a_card_without_unique_id_or_name(
    tree: Tree, changes: dict[str, str | bytes | None], uuid: str, model: str
) -> None:
    """Its UUID is the address, and its model the device number."""
    tree.card(**changes)
    identity = (await tree.gpu()).identity
    assert (identity.uuid, identity.model) == (uuid, model)


async def test_other_devices_are_no_amd_cards(tree: Tree) -> None:
    """Connectors, the console's card, an old driver, a card given to a virtual machine, and partitions."""
    tree.card(2)
    for name, content in BOARD.items():
        tree.write(f"class/drm/card2-DP-1/device/{name}", content)
    tree.write("class/drm/card0/device/vendor", "0x1a03")
    tree.write("class/drm/card1/device/vendor", "0x10de")
    tree.card(3, 140, uevent="DRIVER=radeon\nPCI_SLOT_NAME=0000:44:00.0")
    tree.card(4, 141, uevent="DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:45:00.0")
    tree.write("class/drm/card5/device/uevent", "DRIVER=amdgpu_xcp_drv\nMODALIAS=platform:amdgpu_xcp")
    tree.write("class/drm/renderD128/device/vendor", "0x1002")
    tree.write("class/drm/version", "drm 1.1.0 20060810")
    assert [gpu.identity.uuid for gpu in (await tree.read()).gpus] == [UUID]


async def test_cards_are_sorted_by_number_and_indices_have_no_gaps(tree: Tree) -> None:
    tree.card(10, uevent="DRIVER=amdgpu\nPCI_SLOT_NAME=0001:c6:00.0", unique_id="a" * 16)
    tree.card(2, 136)
    reading = await tree.read()
    assert [(gpu.identity.index, gpu.identity.pci_bus_id) for gpu in reading.gpus] == [
        (0, "00000000:19:00.0"),
        (1, "00000001:C6:00.0"),
    ]
