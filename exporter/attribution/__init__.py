"""The join: readings + holdings + processes → who holds what, who uses what, and what is nobody's.

Pure functions of plain records. The rules are written down, with numbers, in ``docs/join.md``.
"""

from exporter.attribution.holdings_index import NOT_KNOWN, HoldingsIndex
from exporter.attribution.join import Attribution, attribute

__all__ = ["NOT_KNOWN", "Attribution", "HoldingsIndex", "attribute"]
