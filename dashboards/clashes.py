"""Labels of the series that clash with labels of the target.

Without ``honor_labels``, Prometheus keeps the label of the target and renames ours to ``exported_…``: then
``namespace`` and ``pod`` name the exporter. That happens label by label: a target may have ``namespace``
alone. Queries are right whichever labels were renamed.

A label that we left empty is not kept. A container without a name, of a target with a label ``container``,
gets the name of the exporter's container, which the series itself does not show.
"""

from collections.abc import Callable, Iterator
from itertools import product

OF_HOLDERS = ("namespace", "pod", "container")
RENAMED = ", ".join(f"exported_{label}" for label in OF_HOLDERS)

Selected = Callable[[str], str]
"""Returns a selector with the given matchers, or an expression over it."""


def unclashed(rows: str, *labels: str) -> str:
    """Return rows with renamed labels restored."""
    for label in labels:
        rows = f'label_replace({rows}, "{label}", "$1", "exported_{label}", "(.+)")'
    return rows


def of_holders(selected: Selected) -> str:
    """Return the rows of the chosen namespaces and pods, whichever of their labels were renamed.

    If none was, all selectors but the first match nothing and cost next to nothing.
    """
    chosen = ("namespace", "pod")
    clear, *others = _ways(*chosen)
    clashing = (*others, f'{clear}, exported_container!=""')
    clear = f'{clear}, exported_container=""'
    return _either(selected(clear), map(selected, clashing), *OF_HOLDERS)


def of_nodes(selected: Selected) -> str:
    """Return the rows of the chosen nodes, whether their label was renamed or not."""
    clear, *clashing = _ways("node")
    return _either(selected(clear), map(selected, clashing), "node")


def _ways(*chosen: str) -> Iterator[str]:
    """Yield the matchers of the chosen values for each combination of renamed labels, first for none."""
    for renamed in product((False, True), repeat=len(chosen)):
        yield ", ".join(
            f'exported_{label}!="", exported_{label}=~"${label}"'
            if clashes
            else f'{label}=~"${label}", exported_{label}=""'
            for label, clashes in zip(chosen, renamed, strict=True)
        )


def _either(clear: str, clashing: Iterator[str], *labels: str) -> str:
    rows = "\n    or ".join(clashing)
    # The mostly empty side comes first: Prometheus stores each row on the left of an "or", at every step.
    return f"(\n  {unclashed(f'({rows})', *labels)}\n  or {clear}\n)"
