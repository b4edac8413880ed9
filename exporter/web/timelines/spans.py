"""From when on a figure shows the past: a history that has just begun is not a sliver at the edge."""

from exporter.history.past import Past
from exporter.web.timelines.stacks import first_known

_MINUTE = 60.0
_LEAST = 5 * _MINUTE


def shown_from(past: Past) -> float:
    """Return the Unix time from which on to show a past.

    Time before the first poll is left out, down to five minutes. A Prometheus may have been there before
    the first value that it has, so that its past is shown as it was asked for.
    """
    known = first_known(past)
    if past.source != "memory" or known is None:
        return past.start
    begin = min(past.start + known * past.step, past.start + past.count * past.step - _LEAST)
    return max(past.start, begin // _MINUTE * _MINUTE)
