"""The join: readings + holdings + processes → rows of containers, GPUs and MIG devices.

Pure functions of plain records; ``docs/join.md`` has the numbered rules, for users. The memory of a process
becomes a container's series in these steps, of which only the join is in this folder:

1. ``nvml/readings/gpu_processes.py`` (AMD: ``amd/kfd.py``) lists the pids of a device with their memory, for
   ``nvml/gpu.py`` and ``nvml/mig.py``;
2. ``poll/sources.py`` collects the pids, ``poll/poller.py`` passes them to ``ProcessReader`` of
   ``poll/file_readers.py``, and ``workloads/processes.py`` reads their cgroups, and so their containers;
3. ``poll/snapshot_builder.py`` corrects these by ``workloads/places.py`` and calls ``join.py``. For each
   device ``container_rows.py`` makes the rows: ``owners`` of ``owners.py`` matches processes with holders,
   ``use_by_process`` of ``use.py`` adds up the processes of each, and ``with_meters`` takes the meter of
   the sharing system instead;
4. ``metrics/holders.py`` makes the series of a row, with the labels of ``metrics/__init__.py``, and
   ``exposition/lines.py`` its lines in ``/metrics``.
"""

from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.join import Attribution, attribute

__all__ = ["NOT_KNOWN", "Attribution", "HoldingsIndex", "attribute"]
