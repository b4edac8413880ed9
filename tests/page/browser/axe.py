"""What axe-core says of a page."""

from axe_playwright_python.async_playwright import Axe

SERIOUS = frozenset({"serious", "critical"})


async def faults(page) -> list[str]:
    """Return the serious violations that axe-core finds on a page."""
    found = (await Axe().run(page)).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][-200:]}"
        for rule in found
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
