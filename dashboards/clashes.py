"""Our labels, where the target has labels that are called the same.

If labels are not honoured, Prometheus puts those of the target in the place of ours and keeps ours as
``exported_…``: then ``namespace`` and ``pod`` name the exporter. That happens label by label: a target may
have ``namespace`` alone. Queries are right whatever was renamed.

A label that we left empty is not kept. A container without a name, of a target with a label ``container``,
bears the name of the exporter's: nothing in the series itself tells that it is not its own.
"""

from collections.abc import Callable, Iterator
from itertools import product

OF_HOLDERS = ("namespace", "pod", "container")
RENAMED = ", ".join(f"exported_{label}" for label in OF_HOLDERS)

Selected = Callable[[str], str]
"""Makes a selector of matchers, or what is reckoned over it."""


def unclashed(rows: str, *labels: str) -> str:
    """Give rows our labels back, where these were renamed."""
    for label in labels:
        rows = f'label_replace({rows}, "{label}", "$1", "exported_{label}", "(.+)")'
    return rows


def of_holders(selected: Selected) -> str:
    """Give the rows of the chosen namespaces and pods, whichever of their labels were renamed.

    Where none was, all but the first selector find nothing and cost next to nothing.
    """
    chosen = ("namespace", "pod")
    clear, *others = _ways(*chosen)
    clashing = (*others, f'{clear}, exported_container!=""')
    clear = f'{clear}, exported_container=""'
    return _either(selected(clear), map(selected, clashing), *OF_HOLDERS)


def of_nodes(selected: Selected) -> str:
    """Give the rows of the chosen nodes, whether their label was renamed or not."""
    clear, *clashing = _ways("node")
    return _either(selected(clear), map(selected, clashing), "node")


def _ways(*chosen: str) -> Iterator[str]:
    """Give the matchers of what is chosen, for each way in which labels may have been renamed: first none."""
    for renamed in product((False, True), repeat=len(chosen)):
        yield ", ".join(
            f'exported_{label}!="", exported_{label}=~"${label}"'
            if clashes
            else f'{label}=~"${label}", exported_{label}=""'
            for label, clashes in zip(chosen, renamed, strict=True)
        )


def _either(clear: str, clashing: Iterator[str], *labels: str) -> str:
    rows = "\n    or ".join(clashing)
    # What is mostly empty stands first: Prometheus notes each row on the left of an "or", at every step.
    return f"(\n  {unclashed(f'({rows})', *labels)}\n  or {clear}\n)"
