"""The page docs/performance.md, written from what was measured."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import fleet_table
from benchmarks.growth import MEASURES
from benchmarks.judge import MIB, Results, above, above_binding, bare, client, share, verdicts
from benchmarks.nodes import NODES
from benchmarks.side_by_side_parts import tables

FOLDER = Path(__file__).parent
_SIGNS = {True: "met", False: "**not met**", None: "cannot be told"}
_OTHERS = ("footprint", "history", "page", "live", "hami_caches", "rules")
_UNMEASURED = "This was not measured yet: `make bench`."
Row = Sequence[object]
Column = Callable[[Mapping[str, Any]], str]
_TEXTS = Path(__file__).with_name("performance.txt")


def texts() -> dict[str, str]:
    """Return the texts of performance.txt by their names, each with its heading, in the order of the page."""
    found = re.findall(r"^\[(\w+)\]\n(.*?)\n(?=\[|\Z)", _TEXTS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {name: text.strip() for name, text in found}


def page(results: Results) -> str:
    """Write the page: the texts of performance.txt, each with its table; what was not measured has no row."""
    written = {
        "machine": _table(("", "measured on"), results.get("machine", {}).items()),
        "targets": _targets(results),
        "polls": _polls(results),
        "exposition": _exposition(results),
        "scrapes": _scrapes(results),
        "memory": _memory(results),
        "libraries": _section(results, "libraries", _libraries),
        "startup": _startup(results),
        "growth": _growth(results),
        "side_by_side": _section(results, "side-by-side", tables.markdown),
        "fleet": _section(results, "fleet", fleet_table.table),
        "others": _others(),
    }
    parts = [part.strip() for name, text in texts().items() for part in (text, written.get(name, ""))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(results: Results, name: str, table: Callable[[Mapping[str, Any]], str]) -> str:
    """Write what one measure found; where it found nothing, why."""
    reason = results.get("missing", {}).get(name)
    if name not in results:
        return _UNMEASURED if reason is None else f"This was not measured: {reason}"
    told = table(results[name])
    return (
        told
        if reason is None
        else f"This is of an earlier run; in the last it was not measured: {reason}\n\n{told}"
    )


def _table(head: Sequence[str], rows: Iterable[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    if len(lines) == 2:
        return _UNMEASURED
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


def _libraries(found: Mapping[str, Any]) -> str:
    rows: list[Row] = [
        (name, *(f"{stage[what] / MIB:.1f} MiB" for what in ("resident", "files")))
        for name, stage in found["stages"].items()
    ]
    all_of_it = ("all", *(f"{found[what] / MIB:.1f} MiB" for what in ("resident", "files")))
    return _table(("", "resident", "of that files"), [*rows, all_of_it])


def _startup(results: Results) -> str:
    columns: dict[str, Column] = {
        "best": lambda found: f"{found['wall']:.2f} s",
        "middle": lambda found: f"{found['wall_median']:.2f} s",
        "processor": lambda found: f"{found['cpu']:.2f} s",
    }
    return _per_node(results, "startup", columns)


def _growth(results: Results) -> str:
    if "growth" not in results:
        return _UNMEASURED
    growth = results["growth"]
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
