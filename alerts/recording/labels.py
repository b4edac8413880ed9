"""The labels of containers, as the exporter wrote them.

Without ``honor_labels``, Prometheus replaces a label that the target also has, and keeps ours as
``exported_…``. That happens label by label: a target may have ``namespace`` alone. A label that we left empty
is not kept: then the target's label is there, which names the exporter.
"""

from collections.abc import Callable

from alerts.promql import HOLDER, TARGET, indented

_NO_CLASH = '{exported_namespace="", exported_pod="", exported_container=""}'
_CONTAINER_CLASH = '{exported_container!=""}'
_OTHER_CLASHES = (
    '{exported_container="", exported_namespace!=""}',
    '{exported_container="", exported_namespace="", exported_pod!=""}',
)
# This series has no label container, so one that is there is the target's.
_TARGET_HAS_CONTAINER = 'gpuslice_node_info{container!=""}'

Selected = Callable[[str], str]


def now(family: str) -> Selected:
    """Return a selection of a family of series of containers, by matchers."""
    return lambda matchers: family + matchers


def over(function: str, family: str, window: str) -> Selected:
    """Return a selection with a function over a window, including rows that have ended."""
    return lambda matchers: f"{function}({family}{matchers}[{window}])"


def still_there(function: str, family: str, window: str) -> Selected:
    """Return a selection with a function over a window, of rows that exist now.

    So a container does not count next to its replacement.
    """
    return lambda matchers: f"({function}({family}{matchers}[{window}]) and {family}{matchers})"


def by_holder(selected: Selected) -> str:
    """Return the rows by the labels HOLDER alone.

    If no label clashes, all selectors but the first match nothing and cost nothing.
    """
    return f"max by ({HOLDER}) (\n{indented(selected(_NO_CLASH))}\n  or\n{indented(_renamed(selected))}\n)"


def _renamed(selected: Selected) -> str:
    unclear = "\nor\n".join(selected(matchers) for matchers in _OTHER_CLASHES)
    unclear = f"(\n{indented(unclear)}\n)"
    ours = f"{unclear}\nunless on ({TARGET}) {_TARGET_HAS_CONTAINER}"
    not_ours = f"{unclear}\nand on ({TARGET}) {_TARGET_HAS_CONTAINER}"
    rows = "\nor\n".join(
        (
            _own(selected(_CONTAINER_CLASH), "container"),
            f"(\n{indented(ours)}\n)",
            _replaced(not_ours, "container", "", "container", ".*"),
        )
    )
    return _own(_own(rows, "pod"), "namespace")


def _own(rows: str, label: str) -> str:
    return _replaced(rows, label, "$1", f"exported_{label}", "(.+)")


def _replaced(rows: str, label: str, value: str, source: str, pattern: str) -> str:
    return f'label_replace(\n{indented(rows)},\n  "{label}", "{value}", "{source}", "{pattern}"\n)'
