"""What can go wrong between us and a dcgm-exporter, in words that a person can act on."""

from typing import Final, Literal

Reason = Literal[
    "unreachable", "deadline", "status", "too_large", "malformed", "own_page", "not_dcgm", "no_profiling"
]

REMEDIES: Final[dict[Reason, str]] = {
    "unreachable": "check that dcgm-exporter runs on this node and that --dcgm-exporter-url leads to it",
    "deadline": "dcgm-exporter is overloaded or hangs; it is asked again at the next poll",
    "status": "check the path of --dcgm-exporter-url; dcgm-exporter serves /metrics",
    "too_large": "check that --dcgm-exporter-url leads to the dcgm-exporter of one node",
    "malformed": "check that --dcgm-exporter-url leads to a dcgm-exporter",
    "own_page": "let --dcgm-exporter-url lead to dcgm-exporter, by default on port 9400",
    "not_dcgm": "check that --dcgm-exporter-url leads to a dcgm-exporter that has started",
    "no_profiling": "give dcgm-exporter the right SYS_ADMIN and a file of counters that has DCGM_FI_PROF"
    " fields, and see that nothing else profiles the GPUs",
}


class DcgmError(Exception):
    """The dcgm-exporter gave no usable page. ``reason`` is one of a few stable words, fit for a label.

    The message ends in the remedy.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{detail} ({reason}): {REMEDIES[reason]}")
        self.reason: Reason = reason
