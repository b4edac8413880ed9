"""A node with holders in several states, and functions to read its table of holders."""

from yarl import URL

from exporter.model import ContainerRef, Totals
from exporter.web.node_parameters import asked_query
from tests.web.views_reading import GIB, NOW, draw, gpu, holder, mig, snapshot

ROWS = (
    holder("anna", holder=ContainerRef("ml", "anna", "jupyter")),
    holder("bench", "GPU-1", slices=0, memory_used=GIB, holder=ContainerRef("qa", "bench", "main")),
    holder("train 0", mig("m-1", gpu_uuid="GPU-13").device, compute_used=None, sharing="mig"),
    holder("web", "GPU-1", memory_used=20 * GIB, isolation="soft", sharing="hami"),
    holder("old", "GPU-13", compute_used=0.0, totals=Totals(first_seen=NOW - 9000, last_active=NOW - 3600)),
)
NODE = snapshot([gpu(), gpu(1), gpu(13)], ROWS, [mig("m-1", gpu_uuid="GPU-13")])


def asked(url, node=NODE):
    """Return the section of holders of the page at that URL."""
    return draw(node, query=asked_query(URL(f"/{url}").query)).one("section", id="holders")


def pods(section):
    """Return the pods of the rows in order."""
    rows = [row for body in section.all("tbody") for row in body.all("tr")]
    return [row.one("th").one(of="pod").text for row in rows]
