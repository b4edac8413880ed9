"""Identity of a GPU: constant while the driver is loaded."""

from typing import Any

from exporter.model import GpuIdentity
from exporter.nvml.driver.calls import CORE, Calls
from exporter.nvml.readings.answers import number

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}


def identify(calls: Calls, handle: Any, uuid: str, index: int) -> GpuIdentity:
    """Ask who a GPU is."""
    calls.group = CORE
    pci = calls.ask(uuid, "nvmlDeviceGetPciInfo", handle)
    return GpuIdentity(
        uuid=uuid,
        index=index,
        minor=_minor(calls.ask(uuid, "nvmlDeviceGetMinorNumber", handle)),
        model=calls.ask(uuid, "nvmlDeviceGetName", handle) or "",
        pci_bus_id=bus_id(pci) if pci is not None else "",
        serial=calls.ask(uuid, "nvmlDeviceGetSerial", handle),
        architecture=ARCHITECTURES.get(calls.ask(uuid, "nvmlDeviceGetArchitecture", handle)),
        vbios=calls.ask(uuid, "nvmlDeviceGetVbiosVersion", handle),
        part_number=calls.ask(uuid, "nvmlDeviceGetBoardPartNumber", handle),
        inforom=calls.ask(uuid, "nvmlDeviceGetInforomImageVersion", handle),
        gsp_firmware=calls.ask(uuid, "nvmlDeviceGetGspFirmwareVersion", handle),
        compute_capability=_capability(calls.ask(uuid, "nvmlDeviceGetCudaComputeCapability", handle)),
    )


def _minor(answer: int | None) -> int | None:
    return None if answer is None else number(answer)


def _capability(answer: tuple[int, int] | None) -> str | None:
    return None if answer is None else ".".join(map(str, answer))


def bus_id(pci: Any) -> str:
    """Return the bus address in a PCI record, as far as it is readable."""
    # The binding's own way to the field raises where the bytes are no UTF-8.
    raw: bytes = object.__getattribute__(pci, "busId")
    return raw.decode(errors="replace")
