"""``doctor``: what can be read on this node, what is lost where it cannot, and how to mend it."""

from exporter.commands.node_and_output import Node
from exporter.commands.one_poll import poll_once
from exporter.doctor import examine
from exporter.doctor.report import Report


async def doctor(node: Node) -> Report:
    """Poll once and judge every source."""
    snapshot, evidence = await poll_once(node)
    return examine(snapshot, evidence, node.settings)
