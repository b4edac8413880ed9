"""The join: readings + holdings + processes → rows of containers, GPUs and MIG devices.

Pure functions of plain records; ``docs/join.md`` has the numbered rules. From a process's memory to a
container's series: ``owners.py`` finds the container of each process, ``use.py`` adds up its processes (or
takes the sharing system's meter instead), ``device_rows.py`` makes the row, ``join.py`` visits every device.
"""

from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.join import Attribution, attribute

__all__ = ["NOT_KNOWN", "Attribution", "HoldingsIndex", "attribute"]
