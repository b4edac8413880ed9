"""The page docs/performance.md, written from what was measured."""

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import MEASURES
from benchmarks.judge import MIB, Results, above, above_binding, bare, client, share, verdicts
from benchmarks.nodes import NODES

FOLDER = Path(__file__).parent
_SIGNS = {True: "met", False: "**not met**", None: "cannot be told"}
_OTHERS = ("footprint", "history", "page", "live", "hami_caches", "rules")
Row = Sequence[object]
Column = Callable[[Mapping[str, Any]], str]
_TEXTS = Path(__file__).with_name("performance.txt")


def page(results: Results) -> str:
    """Write the page: the texts of performance.txt, each with its table; what was not measured has no row."""
    texts = dict(
        re.findall(r"^\[(\w+)\]\n(.*?)\n(?=\[|\Z)", _TEXTS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
    tables = {
        "machine": _table(("", "measured on"), results.get("machine", {}).items()),
        "targets": _targets(results),
        "polls": _polls(results),
        "exposition": _exposition(results),
        "scrapes": _scrapes(results),
        "memory": _memory(results),
        "startup": _startup(results),
        "growth": _growth(results),
        "others": _others(),
    }
    parts = [part.strip() for name, text in texts.items() for part in (text, tables.get(name, ""))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(head: Sequence[str], rows: Iterable[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _targets(results: Results) -> str:
    rows = [
        (
            judged.target,
            judged.node or "all",
            judged.found,
            judged.aim,
            _SIGNS[judged.met],
        )
        for judged in sorted(verdicts(results), key=lambda judged: judged.target)
    ]
    return _table(("target", "node", "found", "aim", ""), rows)


def _per_node(results: Results, measure: str, columns: Mapping[str, Column]) -> str:
    rows = [
        (what, *(column(results[f"{measure}-{name}"]) for column in columns.values()))
        for name, (what, _) in NODES.items()
        if f"{measure}-{name}" in results
    ]
    return _table(("node", *columns), rows)


def _ms(key: str) -> Column:
    return lambda found: f"{found[key] * 1e3:.1f} ms"


def _mib(key: str) -> Column:
    return lambda found: f"{found[key] / MIB:.1f} MiB"


def _polls(results: Results) -> str:
    columns: dict[str, Column] = {
        "above the bare calls": lambda found: f"{above(found):.2f} x",
        "with a driver that takes no time": lambda found: f"{above_binding(found):.2f} x",
        "poll": _ms("poll"),
        "bare calls": lambda found: f"{bare(found) * 1e3:.1f} ms",
        "of it driver": lambda found: f"{found['calls']} calls, {found['bare_driver'] * 1e3:.1f} ms",
        "of that in the binding": _ms("bare_binding"),
        "of it kubelet": _ms("bare_kubelet"),
        "bare /proc": _ms("bare_files"),
        "of a core, without the driver": lambda found: f"{share(found):.2%}",
    }
    return _per_node(results, "polls", columns)


def _exposition(results: Results) -> str:
    columns: dict[str, Column] = {
        "prometheus_client to ours": lambda found: f"{client(found):.1f} x",
        "page": _ms("page"),
        "gzip": _ms("gzip"),
        "holders": lambda found: str(found["holders"]),
        "series": lambda found: str(found["samples"]),
        "bytes": lambda found: f"{found['plain_bytes'] / 1e3:.0f} kB",
        "compressed": lambda found: f"{found['gzip_bytes'] / 1e3:.0f} kB",
    }
    return _per_node(results, "polls", columns)


def _scrapes(results: Results) -> str:
    rows = [
        (
            what,
            count,
            f"{found['ratio']:.2f} x",
            f"{found['cpu_ratio']:.2f} x",
            f"{found['p50'] * 1e3:.2f} / {found['p99'] * 1e3:.1f} ms",
            f"{found['bare_p50'] * 1e3:.2f} / {found['bare_p99'] * 1e3:.1f} ms",
        )
        for name, (what, _) in NODES.items()
        for count, found in results.get(f"scrapes-{name}", {}).items()
    ]
    head = ("node", "at a time", "p50 to bare", "processor to bare", "p50 / p99", "bare p50 / p99")
    return _table(head, rows)


def _memory(results: Results) -> str:
    columns: dict[str, Column] = {
        "after an hour": _mib("closed"),
        "grown in an hour": lambda found: (
            f"{found['slope'] / MIB:.1f} ± {2 * found['slope_error'] / MIB:.1f} MiB"
        ),
        "with five pages open": _mib("opened"),
        "most": _mib("peak"),
        "left out: the faked driver": _mib("fake"),
    }
    return _per_node(results, "memory", columns)


def _startup(results: Results) -> str:
    columns: dict[str, Column] = {
        "best": lambda found: f"{found['wall']:.2f} s",
        "middle": lambda found: f"{found['wall_median']:.2f} s",
        "processor": lambda found: f"{found['cpu']:.2f} s",
    }
    return _per_node(results, "startup", columns)


def _growth(results: Results) -> str:
    growth = results.get("growth", {"nodes": [], "exponents": dict.fromkeys(MEASURES, math.nan)})
    powers = growth["exponents"]
    rows: list[Row] = [
        (
            node["holders"],
            f"{node['poll'] * 1e3:.0f} ms",
            f"{node['page'] * 1e3:.1f} ms",
            f"{node['plain_bytes'] / 1e3:.0f} kB",
            f"{node['resident'] / MIB:.0f} MiB",
        )
        for node in growth["nodes"]
    ]
    fitted = ("power", *(f"{powers[what]:.2f}" for what in MEASURES))
    return _table(("holders", "poll", "page", "bytes", "memory"), [*rows, fitted])


def _others() -> str:
    """List the benchmarks that are run by themselves, by the first line of what each says of itself."""
    rows = []
    for name in _OTHERS:
        told = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))) or ""
        rows.append((f"`benchmarks/{name}.py`", told.splitlines()[0]))
    return _table(("run", "tells"), rows)
