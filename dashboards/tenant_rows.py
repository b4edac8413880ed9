"""Queries of the dashboard Tenant: rows of the chosen pods, and their sums."""

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
"""Compute above this ratio of a share counts as over the share."""
_HELD = {"compute": "compute_entitled_ratio", "memory": "memory_entitled_bytes"}
_USED = {"compute": "compute_used_ratio", "memory": "memory_used_bytes"}
_COUNTERS = {"held": "entitled_gpu_seconds_total", "used": "used_gpu_seconds_total"}
_NODES = node_names(CLUSTER)
_DESCRIBED = "resource, sharing, isolation, model"
_INFO = f"max by ({HOLDER}, {_DESCRIBED}) ({containers('info', CLUSTER)})"
_PLACES = f"max by ({DEVICE}, node, gpu) ({gpu_names(CLUSTER, _NODES)})"
_PLACED = "cluster, namespace, pod, container, uuid, mig_uuid, node, gpu"


def series(name: str) -> str:
    """Return a series of containers, of the chosen pods."""
    return containers(name, CLUSTER)


def held(quantity: str) -> str:
    """Return entitlements of holders to ``compute`` (GPUs) or ``memory`` (bytes)."""
    return own(series(_HELD[quantity]), CLUSTER)


def used(quantity: str) -> str:
    """Return use by containers of ``compute`` (GPUs) or ``memory`` (bytes)."""
    return own(series(_USED[quantity]), CLUSTER)


def efficiency(quantity: str) -> str:
    """Return used by held, of rows with both known."""
    return f"sum({used(quantity)} and {held(quantity)}) / (sum({held(quantity)} and {used(quantity)}) > 0)"


def idle() -> str:
    """Return the seconds since the last compute use of idle holders."""
    return (
        f"(time() - {series('last_active_timestamp_seconds')} > $idle) "
        f"and {series('compute_used_ratio')} == 0 and {series('slices')} > 0"
    )


def known_idle() -> str:
    """Return 0 for each holder with a known state, idle or not."""
    return f"({series('last_active_timestamp_seconds')} and {series('slices')} > 0) * 0"


def gpu_seconds(what: str) -> str:
    """Return GPU-seconds ``held`` or ``used`` in the time shown, including pods that have ended."""
    return _grown(_COUNTERS[what])


def unused_gpu_seconds() -> str:
    """Return GPU-seconds held and not used, by row: use above one share does not offset another."""
    return f"clamp_min({gpu_seconds('held')} - {gpu_seconds('used')}, 0)"


def joules() -> str:
    """Return the energy of the time shown."""
    return _grown("energy_joules_total")


def watts() -> str:
    """Return the current power, from the energy counters."""
    return own(containers_over("rate", "energy_joules_total", CLUSTER, "$__rate_interval"), CLUSTER)


def cost(gpu_hours: str) -> str:
    """Return the cost of GPU-hours; no result if the entered price is not a number.

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
    """Return rows of holders with node, GPU, model, resource, sharing and isolation."""
    return (
        f"max by ({_PLACED}, {_DESCRIBED}) ("
        f"({rows}) * on ({HOLDER}) group_left ({_DESCRIBED}) {_INFO} "
        f"* on ({DEVICE}) group_left (node, gpu) {_PLACES})"
    )


def over_share() -> str:
    """Return used by held above 1, by ``quantity``: memory now, compute of the last 5 minutes."""
    memory = f"{series(_USED['memory'])} / ({series(_HELD['memory'])} > 0) > 1"
    used = series(_USED["compute"])
    mean = f"({containers_over('avg_over_time', _USED['compute'], CLUSTER, '5m')} and {used})"
    # A holder that uses its full share is sometimes measured slightly above it.
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
    """Return the Unix milliseconds of XID errors in the time shown, on devices that are held now.

    One that a single MIG device caused concerns its holders alone.
    """
    last = f"gpuslice_gpu_xid_last_timestamp_seconds{{{CLUSTER}, mig_uuid%s}}[$__range]"
    whole, part = (f"last_over_time({last % matched})" for matched in ('=""', '!=""'))
    holding = f"{series('slices')} > 0"
    # A restarted exporter is another target.
    held = (
        f"{whole} and on (cluster, uuid) ({holding}) or {part} and on (cluster, uuid, mig_uuid) ({holding})"
    )
    places = f"topk by (cluster, uuid) (1, {_PLACES})"
    named = f"(({held}) > time() - $__range_s) * on (cluster, uuid) group_left (node, gpu) {places}"
    return f"max by (cluster, node, gpu, uuid, mig_uuid, xid) ({named}) * 1000"
