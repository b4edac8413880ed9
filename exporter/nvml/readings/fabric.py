"""Decodes the registration of a GPU with its NVLink fabric, and the mask of the fabric's health."""

import uuid
from collections.abc import Mapping
from typing import Any

from exporter.model.readings import FabricProblem
from exporter.nvml.readings.paths import FABRIC, name_of

STATES = ("not_started", "in_progress", "completed")
# Of the mask of a fabric's health (``NVML_GPU_FABRIC_HEALTH_MASK_*`` of nvml.h), by shift: the problem of two
# bits, the number that stands for it, and the one for its absence. Others are not reported by the driver.
PROBLEMS: Mapping[int, tuple[FabricProblem, int, int]] = {
    0: ("degraded_bandwidth", 1, 2),
    2: ("route_recovery", 1, 2),
    4: ("route_unhealthy", 1, 2),
    6: ("access_timeout_recovery", 1, 2),
    12: ("no_partition", 2, 1),
    14: ("manager_disconnected", 2, 1),
}
# Four bits of the mask from this shift on: a correct configuration is 1, and the words are from 2 on.
MISCONFIGURATION_SHIFT, CORRECT = 8, 1
MISCONFIGURATIONS = (
    "incorrect_system_guid",
    "incorrect_chassis_serial",
    "no_partition",
    "insufficient_nvlinks",
    "incompatible_firmware",
    "invalid_location",
    "invalid_gpu_state",
)


def decode_fabric(answer: Any) -> dict[str, Any] | None:
    """Return the registration with the fabric, domain and problems; None for a GPU without a fabric."""
    # The library fills one byte; the binding also reads the padding behind it.
    state = dict(enumerate(STATES, start=1)).get(answer.state & 0xFF)
    if state is None:
        return None
    values = {name_of(FABRIC.state): state, **decode_health(answer.healthMask)}
    # All zeros if the fabric does not leave the node.
    cluster = bytes(answer.clusterUuid)
    if state == "completed" and answer.status != 0:
        values[name_of(FABRIC.state)] = "failed"
    elif state == "completed" and any(cluster):
        values[name_of(FABRIC.cluster)] = str(uuid.UUID(bytes=cluster))
        values[name_of(FABRIC.clique)] = answer.cliqueId
    return values


def decode_health(mask: int) -> dict[str, Any]:
    """Return the decoded mask of a fabric's health: the problems that the driver reports, True or False.

    Decoded as by ``NVML_GPU_FABRIC_HEALTH_GET`` of nvml.h:
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html
    """
    problems: dict[FabricProblem, bool] = {}
    for shift, (problem, raised, cleared) in PROBLEMS.items():
        state = mask >> shift & 0x3
        if state in (raised, cleared):
            problems[problem] = state == raised
    configuration = mask >> MISCONFIGURATION_SHIFT & 0xF
    if configuration:
        problems["incorrect_configuration"] = configuration != CORRECT
    word_of = dict(enumerate(MISCONFIGURATIONS, start=CORRECT + 1)).get(configuration)
    return {name_of(FABRIC.problems): problems, name_of(FABRIC.misconfiguration): word_of}
