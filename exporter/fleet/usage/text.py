"""Usage as a table for a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal

from exporter.fleet.amounts import Amount
from exporter.fleet.usage.model import Group, Usage, total_amounts, total_quantities
from exporter.fleet.usage.period import HOUR
from exporter.fleet.usage.prices import Prices, cost_of
from exporter.wording import UNKNOWN, plural, printable

ALLOCATION_WORDS = {
    "held": "held",
    "free": "free",
    "unpartitioned": "unpartitioned",
    "down": "down",
    "withdrawn": "withdrawn",
    "not_offered": "not offered",
    "unknown": "unknown",
}
USE_WORDS = {
    "holders": "used by holders",
    "others": "used by others",
    "idle_held": "held and idle",
    "idle_free": "not held and idle",
    "unmeasured": "not measured",
}
NOT_OBSERVED = "not observed"
UNSEEN = "held by pods that no scrape saw"
OVERCOMMITTED = "shares beyond a GPU (overcommitted)"
_HEADINGS = {"owner": "namespace/owner"}
_WITHOUT = {
    "namespace": "no namespace",
    "owner": "no known owner",
    "model": "unknown model",
    "node": "no node",
}


def usage_text(usage: Usage, prices: Prices | None = None) -> str:
    """Return the balances, and a line for each group."""
    lines = [f"! not known: {printable(problem)}" for problem in usage.problems]
    lines += _balances(usage)
    if usage.groups is not None:
        headings, *rows = group_rows(usage, prices)
        lines += ["", *_aligned([tuple(map(_in_capitals, headings)), *rows])]
    lines += [remainder_of(usage), *notes_of(usage, prices)]
    return "".join(f"{line}\n" for line in lines)


def group_name(by: str, group: Group) -> str:
    """Return the name of a group, in words for what has none."""
    return printable(group.name) or _WITHOUT.get(by, f"no {by.replace(':', ' ')}")


def _balances(usage: Usage) -> Iterator[str]:
    balance, digits = usage.balance, digits_of(usage.balance.capacity)
    allocated = rounded(parts_of(balance.allocation, ALLOCATION_WORDS, balance.not_observed), digits)
    used = rounded(parts_of(balance.use, USE_WORDS, balance.not_observed), digits)
    whole, lost = sum(allocated.values(), Decimal()), allocated.pop(NOT_OBSERVED)
    used.pop(NOT_OBSERVED)
    gpus, hours = plural(usage.gpus, "known GPU"), f"{usage.period.hours:,.0f} h"
    sizes = f"{gpus} \u00d7 {hours} = {whole:,} GPU-hours"
    yield f"usage of {usage.period.name} (UTC): {sizes} = classes + {lost:,} {NOT_OBSERVED}"
    yield f"  {' · '.join(_parts(allocated, whole))}"
    if balance.use:
        yield f"  {' · '.join(_parts(used, whole))}"


def parts_of(classes: Mapping[str, float], words: Mapping[str, str], lost: float) -> dict[str, float]:
    """Return GPU-hours by class, in words, with what was not observed."""
    return {word: classes.get(name, 0.0) / HOUR for name, word in words.items()} | {NOT_OBSERVED: lost / HOUR}


def _parts(parts: Mapping[str, Decimal], whole: Decimal) -> Iterator[str]:
    largest = max(parts, key=parts.__getitem__)
    for word, hours in parts.items():
        share = f" ({100 * hours / whole:.0f} %)" if whole and word == largest else ""
        yield f"{word} {hours:,}{share}"


def digits_of(seconds: float) -> int:
    """Return the decimals that GPU-hours of such an amount are printed with."""
    hours = seconds / HOUR
    return 0 if hours >= 1000 else 1 if hours >= 10 else 2


def rounded(parts: Mapping[str, float], digits: int) -> dict[str, Decimal]:
    """Return rounded parts that add up to the rounded sum: the largest remainders are rounded up."""
    unit = Decimal(1).scaleb(-digits)
    exact = {name: Decimal(value) for name, value in parts.items()}
    floors = {name: value.quantize(unit, ROUND_FLOOR) for name, value in exact.items()}
    whole = sum(exact.values(), Decimal()).quantize(unit)
    missing = int((whole - sum(floors.values())) / unit)
    by_remainder = sorted(exact, key=lambda name: floors[name] - exact[name])
    return floors | {name: floors[name] + unit for name in by_remainder[:missing]}


def group_rows(usage: Usage, prices: Prices | None) -> Sequence[tuple[str, ...]]:
    """Return the table of the groups, with its headings and the total."""
    groups = usage.shown
    headings = ["Held GPU-hours", "Used GPU-hours", "Used of held", "Energy kWh"]
    if prices:
        headings.append(f"Cost {prices.currency}")
    digits = digits_of(usage.total.held or 0.0)
    name = _HEADINGS.get(usage.by, usage.by.removeprefix("label:"))
    rows = [(f"{name[0].upper()}{name[1:]}", *headings)]
    rows += [(group_name(usage.by, group), *_cells((group,), digits)) for group in groups]
    listed: list[tuple[Group, ...]] = [(group,) for group in groups]
    if len(groups) > 1:
        rows.append(("total", *_cells(groups, digits)))
        listed.append(groups)
    if prices:
        costs = (cost_of(of, prices).text(lambda value: f"{value:,.2f}") for of in listed)
        rows = [rows[0], *((*row, cost) for row, cost in zip(rows[1:], costs, strict=True))]
    return rows


def _in_capitals(heading: str) -> str:
    return heading.upper().replace("GPU-HOURS", "GPU-H").replace("KWH", "kWh")


def _cells(groups: Sequence[Group], digits: int) -> tuple[str, ...]:
    def hours(amount: Amount) -> str:
        return amount.text(lambda value: f"{value:,.{digits}f}")

    part = total_quantities(group.total for group in groups).used_of_held
    amounts = total_amounts(parts for group in groups for parts in group.kinds.values())
    return (
        hours(amounts.held_hours),
        hours(amounts.used_hours),
        UNKNOWN if part is None else f"{100 * part:.0f} %",
        amounts.kilowatt_hours.text(lambda energy: f"{energy:,.{0 if energy >= 100 else 1}f}"),
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with the first column at the left, and figures at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        cells = (cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True))
        yield "  ".join((name.ljust(widths[0]), *cells))


def remainder_of(usage: Usage) -> str:
    """Return what is held by no group, and what is held twice, as a line."""
    digits = digits_of(usage.total.held or 0.0)

    def hours(seconds: float | None) -> str:
        return UNKNOWN if seconds is None else f"{seconds / HOUR:,.{digits}f}"

    return f"{UNSEEN} {hours(usage.unseen)} · {OVERCOMMITTED} {hours(usage.overcommitted)}"


def notes_of(usage: Usage, prices: Prices | None) -> Iterator[str]:
    """Yield what to know of the figures."""
    if usage.balance.not_observed > usage.balance.capacity / 100:
        yield (
            "! not observed: a GPU before its first reading or after its last one, an exporter that did not "
            "run or was not scraped, hours without records"
        )
    if usage.only:
        yield f"Only {', '.join(map(printable, usage.only))}; the balances are of all namespaces."
    if usage.by.startswith("label:") and usage.groups is not None and not any(g.name for g in usage.groups):
        yield (
            f"! no pod had the label {usage.by.partition(':')[2]}: the exporter reports the labels that its "
            "option --pod-labels names"
        )
    if prices:
        yield f"Cost: {prices.words}."
        yield from _without_price(usage.shown, prices)


def _without_price(groups: Iterable[Group], prices: Prices) -> Iterator[str]:
    kinds = {str(kind) for group in groups for kind in group.kinds if prices.of(kind) is None}
    if kinds:
        yield f"! no price for {', '.join(map(printable, sorted(kinds)))}: costs are lower bounds (≥)"
