"""What a page is asked for beyond its name: filter, order, columns and range, as they stand in its URL."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The part of the URL after the question mark; "" is what a page shows by itself.

    ``text`` are the words of the filter. ``sort`` is the key of a column, after a minus where the largest
    stand first. ``span`` is the range of the timelines, such as ``1h``.
    """

    text: str = ""
    sort: str = ""
    span: str = ""


def read_query(parameters: Mapping[str, str]) -> Query:
    """Read the parameters of a URL. What is not known is left out: a link from elsewhere still works."""
    return Query(
        text=parameters.get("q", "").strip(),
        sort=parameters.get("sort", ""),
        span=parameters.get("range", ""),
    )
