"""The join: readings + holdings + processes → rows of containers, GPUs and MIG devices.

Pure functions of plain records; ``docs/join.md`` has the numbered rules. The memory of a process becomes a
container's series in these steps, of which only the join is in this folder:

1. ``nvml/readings/gpu_processes.py`` (AMD: ``amd/kfd.py``) lists the pids of a device with their memory;
2. ``poll/gpu_sources.py`` collects the pids, ``poll/poller.py`` passes them on, ``workloads/processes.py``
   reads their cgroups, and so their containers, and ``workloads/places.py`` corrects these;
3. ``poll/snapshot_builder.py`` calls ``join.py``; for each device ``device_rows.py`` makes the rows:
   ``owners.py`` matches processes with holders, ``use.py`` adds up the processes of each, ``meters.py``
   takes the meter of the sharing system instead;
4. ``metrics/container_rows.py`` makes the series of a row, ``exposition/lines.py`` its lines on the page.
"""

from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.join import Attribution, attribute

__all__ = ["NOT_KNOWN", "Attribution", "HoldingsIndex", "attribute"]
