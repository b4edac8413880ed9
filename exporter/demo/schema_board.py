"""The records of a scenario's boards: what they are linked to, how healthy they are, how hot they may get."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.readings import RecoveryAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Temperatures in degrees: ``gpu`` and ``memory`` slow the clocks down, ``slowdown`` halves them."""

    shutdown: int = 95
    slowdown: int = 89
    gpu: int = 87
    memory: int = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How a GPU is connected to the processors and to other GPUs.

    Of its ``nvlinks`` the last ``down`` are inactive. They lead directly ``to`` other GPUs, so many to each
    uuid, and beyond those to a ``switch``, or the driver does not know where. ``errors`` counts crc_flit,
    crc_data, replay and recovery over all of them. Null is what the architecture brings:
    ``megabytes_per_second`` of one link, ``pcie_generation``. ``relations`` are in nvidia-smi's words (PSB,
    PIX, PXB, PHB, NODE, SYS) by uuid; one that neither GPU names follows from their ``numa_node``.
    ``numa_node`` null and ``cpus`` empty are what the driver does not know.
    """

    nvlinks: int = 0
    down: int = 0
    switch: bool = False
    to: Mapping[str, int] = field(default_factory=dict)
    megabytes_per_second: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    pcie_generation: int | None = None
    pcie_width: int = 16
    numa_node: int | None = 0
    cpus: str = "0-31"
    relations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Errors of the memories and what was done about them. ``ecc`` is null on a board without ECC.

    ``errors`` counts by severity, scope and place, such as ``corrected/aggregate/dram``; from Turing on the
    places are dram and sram. Rows are remapped from Ampere on, by severity; ``row_banks`` counts banks by
    what they have left: max, high, partial, low, none. Pages are retired before Ampere, by cause:
    ``single_bit``, ``double_bit``.
    """

    ecc: bool | None = True
    errors: Mapping[str, int] = field(default_factory=dict)
    remapped_rows: Mapping[str, int] = field(default_factory=dict)
    row_remap_pending: bool = False
    row_remap_failure: bool = False
    row_banks: Mapping[str, int] = field(default_factory=lambda: {"max": 640})
    retired_pages: Mapping[str, int] = field(default_factory=dict)
    retired_pages_pending: bool = False
    recovery_action: RecoveryAction = "none"
