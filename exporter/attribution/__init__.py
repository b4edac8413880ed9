"""The join: readings + holdings + processes → rows of containers, GPUs and MIG devices.

Pure functions of plain records; ``docs/join.md`` has the numbered rules, for users. The way of a number:

1. ``nvml/readings/gpu_processes.py`` reads the processes on a device, with their memory.
2. ``poll/snapshot_builder.py`` calls the join. ``join.py`` makes the rows of a GPU, and for each device of it
   ``container_rows.py`` those of containers: ``owners.py`` matches processes with holders, ``use.py`` adds
   up the processes of each, or the sharing system's meter counts. ``closure.py`` decides which zeros are
   proven. ``charges.py`` has what cgroups meter, by the containers of ``cgroup_places.py``, and
   ``cgroup_use.py`` where that counts.
3. ``metrics/holders.py`` turns the rows of containers into series.
"""

from exporter.attribution.charges import CgroupIndex
from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.join import Attribution, attribute

__all__ = ["NOT_KNOWN", "Attribution", "CgroupIndex", "HoldingsIndex", "attribute"]
