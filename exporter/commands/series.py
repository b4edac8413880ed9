"""A warning of names of series that there are not."""

import logging

from exporter.metrics.selection import Selection

log = logging.getLogger(__name__)


def warn_of_unmatched(selection: Selection) -> None:
    """Log the patterns that match no series: after a rename, an old name must not stop the exporter."""
    for pattern, nearest in selection.unmatched().items():
        hint = f"; the names most like it are {', '.join(nearest)}" if nearest else ""
        log.warning("no series matches %r of --metric-allowlist or --metric-denylist%s", pattern, hint)
