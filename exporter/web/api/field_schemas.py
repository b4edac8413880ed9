"""The fields of rows that no series has, as JSON Schema."""

from collections.abc import Mapping
from typing import Any

from exporter.model.states import STATE_WORDS

FURTHER: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "Node": {
        "process_attribution_reason": {
            "type": "string",
            "description": "Why single processes cannot be trusted or seen, empty where they can.",
        }
    },
    "Collector": {
        "message": {
            "type": "string",
            "description": "What is wrong and what to do, empty while all is well.",
        }
    },
    "Container": {
        "state": {
            "enum": [*STATE_WORDS],
            "description": "What the container does with the device, as of the poll.",
        },
        "quiet_seconds": {
            "type": ["number", "null"],
            "description": "How long a quiet or idle container has not been seen computing; null of others.",
            "x-unit": "seconds",
        },
    },
}
"""By the name of a row: the schema of each field."""
