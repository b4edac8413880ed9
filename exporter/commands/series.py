"""The series that the settings choose."""

import logging

from exporter.config.settings import Settings
from exporter.metrics.selection import Selection

log = logging.getLogger(__name__)


def selection_of(settings: Settings) -> Selection:
    """Return the choice of families of the settings."""
    return Selection(
        metric_set=settings.metric_set,
        dcgm_names=settings.dcgm_names,
        allow=settings.metric_allowlist,
        deny=settings.metric_denylist,
    )


def warn_of_unmatched(selection: Selection) -> None:
    """Log the patterns that match no series: after a rename, an old name must not stop the exporter."""
    for pattern, nearest in selection.unmatched().items():
        hint = f"; the names most like it are {', '.join(nearest)}" if nearest else ""
        log.warning("no series matches %r of --metric-allowlist or --metric-denylist%s", pattern, hint)
