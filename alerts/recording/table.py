"""The reference tables of ``docs/recording-rules.md``."""

from collections import defaultdict

from alerts.recording import Windows, recording_groups

_WINDOWS = Windows(interval="1m", slow_interval="5m", idle_after="1h")


def record_table() -> str:
    """Return a table in Markdown: each record, its levels, and its meaning."""
    levels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for group in recording_groups(_WINDOWS):
        for record in group.rules:
            level, name = record.name.split(":", 1)
            levels[name, getattr(record, "why", "")].append(level)
    rows = [f"| `{name}` | {', '.join(names)} | {why} |" for (name, why), names in levels.items()]
    return "\n".join(("| record | levels | meaning |", "| --- | --- | --- |", *rows)) + "\n"
