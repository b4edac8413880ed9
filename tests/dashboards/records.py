"""The labels that recording rules leave, by their names: level:what:how."""

TARGET = frozenset({"cluster", "job", "instance"})
DEVICE = TARGET | {"uuid"}
HOLDER = DEVICE | {"mig_uuid", "namespace", "pod", "container"}
_LEVELS = {
    "container": HOLDER,
    "pod": frozenset({"cluster", "namespace", "pod"}),
    "gpu": DEVICE | {"node", "gpu", "model"},
    "node": frozenset({"cluster", "node"}),
    "node_model": frozenset({"cluster", "node", "model"}),
    "model": frozenset({"cluster", "model"}),
    "namespace": frozenset({"cluster", "namespace"}),
    "cluster": frozenset({"cluster"}),
}


def record_labels(name: str) -> frozenset[str]:
    """Give the labels that a record may have; KeyError for one of no known level."""
    level, what, _ = name.split(":")
    if name == "node:gpuslice_info:names":
        return TARGET | {"node"}
    return _LEVELS[level] | ({"resource"} if "_slices" in what and level != "container" else frozenset())
