"""Expressions of any parts, for properties; some of them are no PromQL."""

from hypothesis import strategies as st

Text = st.SearchStrategy[str]

_SPACES = st.sampled_from(["", " ", "  ", "\n", "\t", " # DCGM_FI_DEV_GPU_UTIL\n", "\r\n"])
_TIMES = st.sampled_from(["", " offset 5m", " offset -1h", " @ 5", " @ end()", " offset $o"])
_RANGES = st.sampled_from(["[5m]", "[$__rate_interval]", "[1h:5m]", "[10m:]"])
_NUMBERS = st.sampled_from(["100", "1024", "1e6", "0", "0.5", "1024 * 1024", "$x"])
_OVER_TIME = st.sampled_from(["rate(", "max_over_time(", "avg_over_time(", "absent_over_time(", "changes("])
_CALLS = st.sampled_from(
    ["abs(", "ceil(", "absent(", "timestamp(", "scalar(", "histogram_quantile(0.9, ", "("]
)
_SUMS = st.sampled_from(["sum", "avg", "count", "stdvar"])
_SUMS_WITH = st.sampled_from(["topk(3, ", "quantile(0.9, ", 'count_values("v", '])
_OPERATORS = st.sampled_from(["==", "!=", ">", "<", "+", "-", "*", "/", "%", "^", "and", "or", "unless"])


def _of(*parts: Text | str) -> Text:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


def _spaced(*parts: Text) -> Text:
    """Return parts with spaces, line breaks or comments between them."""
    return _of(*(each for part in parts for each in (_SPACES, part)))


def _lists(labels: Text) -> Text:
    return st.lists(labels, max_size=3).map(lambda names: f"({', '.join(names)})")


def _matchers(labels: Text) -> Text:
    values = st.sampled_from(['"a"', "'b|Hostname'", '"$h"'])
    one = _of(labels, st.sampled_from(["=", "!=", "=~", "!~"]), values)
    return st.lists(one, max_size=2).map(lambda found: f"{{{','.join(found)}}}")


def expressions(names: Text, labels: Text) -> Text:
    """Make expressions in which these names and labels are read."""
    selector = _spaced(names, st.just("") | _matchers(labels))
    lists = _lists(labels)
    matching = (
        st.just("") | _of(" on", lists) | _of(" ignoring", lists) | _of(" on", lists, " group_left", lists)
    )
    by = st.just("") | _of(" by ", lists) | _of(" without ", lists)

    def grown(inner: Text) -> Text:
        return st.one_of(
            _of(_OVER_TIME, selector, _RANGES, _TIMES, ")"),
            _of(_CALLS, inner, ")"),
            _of(_SUMS, by, "(", inner, ")"),
            _of(_SUMS_WITH, inner, ")"),
            _spaced(inner, _OPERATORS, matching, inner),
            _spaced(inner, _OPERATORS, _NUMBERS),
            _spaced(_NUMBERS, _OPERATORS, inner),
            _of("-(", inner, ")"),
            _of("label_replace(", inner, ', "', labels, '", "$1", "', labels, '", "(.*)")'),
        )

    return st.recursive(_of(selector, _TIMES), grown, max_leaves=5)
