"""The commands that an option may belong to, in named groups.

A command that is in no group, such as ``translate``, has no options from the table of settings.
"""

from collections.abc import Sequence

NODE_COMMANDS = ("serve", "demo", "snapshot", "doctor", "record", "metrics")
"""Those that poll a node, real or simulated."""
MACHINE_COMMANDS = tuple(name for name in NODE_COMMANDS if name != "demo")
"""Those that poll this machine; a simulated node has its own paths and name."""
CLUSTER_COMMANDS = ("hub", "inspect", "advise", "is", "why", "waiting", "usage")
"""Those about a cluster, from a Prometheus."""
PROMETHEUS_COMMANDS = (*CLUSTER_COMMANDS, "doctor")
"""Those that read a Prometheus; the doctor reads its rules."""
KUBERNETES_COMMANDS = (*MACHINE_COMMANDS, "hub", "why", "waiting")
"""Those that may use the Kubernetes API: for a node and its pods, or for the whole cluster."""
SERVING_COMMANDS = ("serve", "demo", "hub")
"""Those that serve pages."""
ALL_COMMANDS = (*NODE_COMMANDS, *CLUSTER_COMMANDS)

_TITLES = {
    ALL_COMMANDS: "Configuration file and log",
    SERVING_COMMANDS: "Listener and pages",
    NODE_COMMANDS: "Polling and series",
    MACHINE_COMMANDS: "Sources on this machine",
    KUBERNETES_COMMANDS: "Kubernetes API",
    PROMETHEUS_COMMANDS: "Prometheus",
}
_OTHERS = "Holders, history and price"


def title_of(commands: Sequence[str]) -> str:
    """Return the heading of the options of these commands, in --help and in docs/settings.md."""
    return _TITLES.get(tuple(commands), _OTHERS)
