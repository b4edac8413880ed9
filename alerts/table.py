"""The reference table of ``docs/recording-rules.md``."""

from alerts.advice_records import advice_groups
from alerts.model import Record
from alerts.records import recording_groups
from alerts.usage_records import usage_groups
from alerts.windows import Windows

_WINDOWS = Windows(interval="1m", slow_interval="5m", idle_after="1h")


def record_table() -> str:
    """Return a table in Markdown: each record, and its meaning."""
    groups = (*recording_groups(_WINDOWS), *advice_groups(), *usage_groups())
    records = [rule for group in groups for rule in group.rules if isinstance(rule, Record)]
    rows = [f"| `{record.name}` | {record.why} |" for record in records]
    return "\n".join(("| record | meaning |", "| --- | --- |", *rows)) + "\n"
