"""What the dashboard of tenants asks for: rows of the chosen pods, and their sums."""

from dashboards.promql import (
    CLUSTER,
    DEVICE,
    HOLDER,
    containers,
    containers_over,
    gpu_names,
    node_names,
    own,
)

SECONDS_OF_HOUR = 3600
JOULES_OF_KWH = 3.6e6
OVER = 1.1
"""Compute above this part of a share is more than the share."""
_HELD = {"compute": "compute_entitled_ratio", "memory": "memory_entitled_bytes"}
_USED = {"compute": "compute_used_ratio", "memory": "memory_used_bytes"}
_COUNTERS = {"held": "entitled_gpu_seconds_total", "used": "used_gpu_seconds_total"}
_NODES = node_names(CLUSTER)
_DESCRIBED = "resource, sharing, isolation, model"
_INFO = f"max by ({HOLDER}, {_DESCRIBED}) ({containers('info', CLUSTER)})"
_PLACES = f"max by ({DEVICE}, node, gpu) ({gpu_names(CLUSTER, _NODES)})"
_PLACED = "cluster, namespace, pod, container, uuid, mig_uuid, node, gpu"


def series(name: str) -> str:
    """Select a family of series of containers, of the chosen pods."""
    return containers(name, CLUSTER)


def held(quantity: str) -> str:
    """Give what holders are entitled to of ``compute`` (GPUs) or ``memory`` (bytes)."""
    return own(series(_HELD[quantity]), CLUSTER)


def used(quantity: str) -> str:
    """Give what containers use of it."""
    return own(series(_USED[quantity]), CLUSTER)


def efficiency(quantity: str) -> str:
    """Give used by held, of the rows of which both are known."""
    return f"sum({used(quantity)} and {held(quantity)}) / (sum({held(quantity)} and {used(quantity)}) > 0)"


def idle() -> str:
    """Give the seconds since they last computed of the holders that are idle."""
    return (
        f"(time() - {series('last_active_timestamp_seconds')} > $idle) "
        f"and {series('compute_used_ratio')} == 0 and {series('slices')} > 0"
    )


def known_idle() -> str:
    """Give 0 for each holder of whom it is known whether it is idle."""
    return f"({series('last_active_timestamp_seconds')} and {series('slices')} > 0) * 0"


def gpu_seconds(what: str) -> str:
    """Give the GPU-seconds of the time shown, ``held`` or ``used``, of pods that are gone as well."""
    return _grown(_COUNTERS[what])


def unused_gpu_seconds() -> str:
    """Give those held and not used, row by row: who uses more than its share makes up for nobody else."""
    return f"clamp_min({gpu_seconds('held')} - {gpu_seconds('used')}, 0)"


def joules() -> str:
    """Give the energy of the time shown."""
    return _grown("energy_joules_total")


def watts() -> str:
    """Give the power now, as the energy meters tell it."""
    return own(containers_over("rate", "energy_joules_total", CLUSTER, "$__rate_interval"), CLUSTER)


def cost(gpu_hours: str) -> str:
    """Give what GPU-hours cost, and nothing if the price that was typed is no number.

    The text is taken as the bound of a histogram's bucket, since nothing else in PromQL reads numbers from
    text; if it stood in the query itself, a comma in it would be an error of syntax. Written for an address
    numbers stay as they are, and a quotation mark does not end the text.
    """
    typed = "${price:percentencode}"
    bounds = (f'label_replace(vector(1), "le", "{bound}", "", "")' for bound in (typed, "+Inf"))
    price = f"histogram_quantile(1, {' or '.join(bounds)}) >= 0"
    return f"({gpu_hours}) * on () group_left () ({price})"


def _grown(counter: str) -> str:
    return own(containers_over("increase", counter, CLUSTER, "$__range"), CLUSTER, "$__range")


def described(rows: str) -> str:
    """Add to rows of holders their node and GPU, model and resource, and how they share it."""
    return (
        f"max by ({_PLACED}, {_DESCRIBED}) ("
        f"({rows}) * on ({HOLDER}) group_left ({_DESCRIBED}) {_INFO} "
        f"* on ({DEVICE}) group_left (node, gpu) {_PLACES})"
    )


def over_share() -> str:
    """Give used by held where it is more, by ``quantity``: memory now, compute of the last 5 minutes."""
    memory = f"{series(_USED['memory'])} / ({series(_HELD['memory'])} > 0) > 1"
    used = series(_USED["compute"])
    mean = f"({containers_over('avg_over_time', _USED['compute'], CLUSTER, '5m')} and {used})"
    # Who uses its share to the full is now and then measured to use a little more.
    compute = f"{mean} / ({series(_HELD['compute'])} > 0) > {OVER}"
    rows = (
        f'label_replace({ratio}, "quantity", "{quantity}", "", "")'
        for quantity, ratio in (("memory", memory), ("compute", compute))
    )
    placed = f"({' or '.join(rows)}) * on ({DEVICE}) group_left (node, gpu) {_PLACES}"
    return f"max by ({_PLACED}, quantity) ({placed})"


def watched() -> str:
    """Return 1 for each GPU that the chosen pods hold and whose events are subscribed to."""
    return f"gpuslice_gpu_events_watched{{{CLUSTER}}} == 1 and on (cluster, uuid) ({series('slices')} > 0)"


def xids() -> str:
    """Give the Unix milliseconds of XID errors in the time shown, on devices that are held now.

    One that a single MIG device caused concerns its holders alone.
    """
    last = f"gpuslice_gpu_xid_last_timestamp_seconds{{{CLUSTER}, mig_uuid%s}}[$__range]"
    whole, part = (f"last_over_time({last % matched})" for matched in ('=""', '!=""'))
    holding = f"{series('slices')} > 0"
    # The exporter that told it may have been restarted since, which makes it another target.
    held = (
        f"{whole} and on (cluster, uuid) ({holding}) or {part} and on (cluster, uuid, mig_uuid) ({holding})"
    )
    places = f"topk by (cluster, uuid) (1, {_PLACES})"
    named = f"(({held}) > time() - $__range_s) * on (cluster, uuid) group_left (node, gpu) {places}"
    return f"max by (cluster, node, gpu, uuid, mig_uuid, xid) ({named}) * 1000"
