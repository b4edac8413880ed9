"""Alerts on GPUs in MIG mode: room in pieces, and instances that nobody has."""

from alerts.groups.capacity_numbers import CapacityThresholds
from alerts.groups.devices import on_any_target
from alerts.model import GPU_BOARD, Alert
from alerts.promql import DEVICE, on_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU

_SLICES = "gpuslice_gpu_mig_memory_slices"
_ADJACENT = "gpuslice_gpu_mig_adjacent_free_memory_slices"


def mig_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
    return (_fragmented(numbers), _unallocated(numbers))


def _fragmented(numbers: CapacityThresholds) -> Alert:
    every = f"sum without (state) ({_SLICES})"
    free = f'sum without (state) ({_SLICES}{{state="free"}})'
    query = f'max by (uuid) ({_SLICES}{{uuid=%q,state="free"}})'
    return Alert(
        name="MigFragmented",
        expr=on_gpu(
            f"{_ADJACENT} < {numbers.mig_adjacent_ratio:g} * {every}\n"
            f"and on ({DEVICE})\n"
            f"({free} >= {numbers.mig_free_ratio:g} * {every})"
        ),
        hold=numbers.mig_fragmented_for,
        severity="info",
        summary=f"The free memory of {SHORT_GPU} lies in pieces",
        description=f"{GPU} has "
        f"{{{{ with query (printf `{query}` $labels.uuid) }}}}{{{{ . | first | value }}}}{{{{ end }}}} "
        f"memory slices free, and no more than {ROUNDED} of them beside each other: no MIG instance of half "
        f"the GPU can be made, though there is room. Pods on it: {PODS}. Move instances together when these "
        "have ended.",
        dashboard=GPU_BOARD,
    )


def _unallocated(numbers: CapacityThresholds) -> Alert:
    query = "gpuslice_mig_info{mig_uuid=%q}"
    return Alert(
        name="MigInstanceUnallocated",
        # Partitions of other makers are cut for a whole GPU at once, and cannot be taken away one by one.
        expr=on_any_target('gpuslice_mig_holders{mig_uuid=~"MIG-.+"} == 0', "mig_uuid"),
        hold=numbers.mig_unallocated_for,
        severity="info",
        summary=f"Nobody has had a MIG instance of {SHORT_GPU} for {numbers.mig_unallocated_for}",
        description="MIG device {{ $labels.mig_uuid }}"
        f"{{{{ with query (printf `{query}` $labels.mig_uuid) }}}} "
        "({{ . | first | label `profile` }}){{ end }}"
        f" of {GPU} has been given to no container for {numbers.mig_unallocated_for}. If nobody asks for "
        "this profile, cut the GPU in another way.",
        dashboard=GPU_BOARD,
    )
