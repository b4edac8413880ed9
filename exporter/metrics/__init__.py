"""The tables of series: one row for each exported family.

HELP texts, the renderer, JSON fields, CSV columns, the reference page and the tests are made from the tables;
a new series is a new row. A family's name is the prefix of its ``Rows`` and the name in its row: search for
``memory_used_bytes``, not for ``gpuslice_container_memory_used_bytes``.
"""

from exporter.metrics.container_rows import CONTAINER, POD
from exporter.metrics.family import (
    AnyFamily,
    Family,
    FamilyType,
    Labelled,
    LabelledFamily,
    Level,
    Number,
    field_name,
    scaled,
)
from exporter.metrics.gpu import GPU
from exporter.metrics.levels import ENTITIES, GROUPS, IDENTITY_LABELS, LEVEL_LABELS, Entity, Enumerate, Group
from exporter.metrics.mig import MIG
from exporter.metrics.node import COLLECTOR, NODE
from exporter.metrics.vgpu import VGPU

FAMILIES: tuple[AnyFamily, ...] = (*NODE, *COLLECTOR, *GPU, *MIG, *VGPU, *CONTAINER, *POD)
"""All native families, in the order of the page."""

__all__ = [
    "COLLECTOR",
    "CONTAINER",
    "ENTITIES",
    "FAMILIES",
    "GPU",
    "GROUPS",
    "IDENTITY_LABELS",
    "LEVEL_LABELS",
    "MIG",
    "NODE",
    "POD",
    "VGPU",
    "AnyFamily",
    "Entity",
    "Enumerate",
    "Family",
    "FamilyType",
    "Group",
    "Labelled",
    "LabelledFamily",
    "Level",
    "Number",
    "field_name",
    "scaled",
]
