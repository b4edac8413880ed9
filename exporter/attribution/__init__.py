"""The join: readings + holdings + processes → rows of containers, GPUs and MIG devices.

Pure functions of plain records; ``docs/join.md`` has the numbered rules. The memory of a process becomes a
container's series in these steps, of which only the join is in this folder:

1. ``nvml/readings/gpu_processes.py`` lists the pids of a device with their memory;
2. ``workloads/`` finds the pod and container of each pid (``poll/poller.py`` passes the pids on);
3. ``owners.py`` matches these with the holders of the device, ``use.py`` adds up the processes of each
   (or takes the meter of the sharing system), ``device_rows.py`` makes the row, by ``join.py``;
4. ``metrics/container_rows.py`` makes the series of a row, ``exposition/lines.py`` its lines on the page.
"""

from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.join import Attribution, attribute

__all__ = ["NOT_KNOWN", "Attribution", "HoldingsIndex", "attribute"]
