"""Alerts on GPUs in MIG mode: fragmented memory, and unallocated instances."""

from alerts.groups.capacity_numbers import CapacityThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.subjects import by_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU

_SLICES = "gpuslice_gpu_mig_memory_slices"
_ADJACENT = "gpuslice_gpu_mig_adjacent_free_memory_slices"


def mig_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (_fragmented(numbers), _unallocated(numbers))


def _fragmented(numbers: CapacityThresholds) -> Alert:
    free = by_gpu(f'{_SLICES}{{state="free"}}')
    every = f"sum without (state) ({by_gpu(_SLICES, 'state')})"
    query = f'max by (uuid) ({_SLICES}{{uuid=%q,state="free"}})'
    return Alert(
        name="MigFragmented",
        expr=f"{by_gpu(_ADJACENT)} < {numbers.mig_adjacent_ratio:g} * {every}\n"
        f"and {free} >= {numbers.mig_free_ratio:g} * {every}",
        hold=numbers.mig_fragmented_for,
        severity="info",
        summary=f"The free MIG memory of {SHORT_GPU} is fragmented",
        description=f"{GPU} has "
        f"{{{{ with query (printf `{query}` $labels.uuid) }}}}{{{{ . | first | value }}}}{{{{ end }}}} "
        f"free memory slices, but at most {ROUNDED} of them are adjacent: no MIG instance of "
        f"half the GPU can be created, though there is room. Pods on it: {PODS}. Move the "
        "instances together when these pods have ended.",
        dashboard=GPU_BOARD,
    )


def _unallocated(numbers: CapacityThresholds) -> Alert:
    return Alert(
        name="MigInstanceUnallocated",
        # Other vendors partition a whole GPU at once; single partitions cannot be removed.
        expr=by_gpu('gpuslice_mig_holders{mig_uuid=~"MIG-.+"}', "mig_uuid", "profile") + " == 0",
        hold=numbers.mig_unallocated_for,
        severity="info",
        summary=f"A MIG instance of {SHORT_GPU} has been unallocated for {numbers.mig_unallocated_for}",
        description="MIG device "
        f"{{{{ $labels.mig_uuid }}}}{{{{ with $labels.profile }}}} ({{{{ . }}}}){{{{ end }}}} of {GPU} has "
        f"been allocated to no container for {numbers.mig_unallocated_for}. If no pod needs this profile, "
        "repartition the GPU.",
        dashboard=GPU_BOARD,
    )
