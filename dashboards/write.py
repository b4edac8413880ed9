"""All dashboards, as files."""

from dashboards.board import written
from dashboards.fleet import fleet
from dashboards.hardware import hardware
from dashboards.node import node
from dashboards.tenant import tenant

BOARDS = (fleet, node, tenant, hardware)


def board_files() -> dict[str, str]:
    """Return the text of each file, by its path below dashboards/."""
    return {f"json/{made.uid}.json": written(made) for made in (make() for make in BOARDS)}
