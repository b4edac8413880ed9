"""Usage as JSON data and as CSV; unknown values are null, or empty cells."""

from typing import Any

from exporter.fleet.usage.model import Balance, Kind, Quantities, Usage
from exporter.fleet.usage.period import HOUR
from exporter.fleet.usage.prices import Prices, cost_of, cost_of_kind
from exporter.formats.json_csv import csv_text

COLUMNS = (
    *("start", "end", "by", "group", "model", "mig_profile"),
    *("held_gpu_hours", "measured_gpu_hours", "used_gpu_hours", "energy_kwh"),
)
_PRICED = ("cost", "currency")


def usage_json(usage: Usage, prices: Prices | None = None) -> dict[str, Any]:
    """Return usage as JSON data: the balances of the period and of each day, and the groups."""
    groups = None
    if usage.groups is not None:
        groups = [
            {
                "name": group.name or None,
                **_with_unknown(group.total),
                **({"cost": cost_of((group,), prices).as_dict()} if prices else {}),
                "devices": [
                    {"model": kind.model or None, "mig_profile": kind.profile or None}
                    | _with_unknown(parts)
                    | ({"cost": cost_of_kind(kind, parts, prices).as_dict()} if prices else {})
                    for kind, parts in group.kinds.items()
                ],
            }
            for group in usage.shown
        ]
    return {
        "timestamp": usage.at,
        "by": usage.by,
        "known_gpus": usage.gpus,
        "balance": _balance(usage.balance),
        "held_by_unseen_pods_gpu_hours": _hours(usage.unseen),
        "overcommitted_gpu_hours": _hours(usage.overcommitted),
        "currency": prices.currency if prices else None,
        "groups": groups,
        "days": [_balance(day) for day in usage.days],
        "problems": list(usage.problems),
    }


def _balance(balance: Balance) -> dict[str, Any]:
    return {
        "start": balance.start,
        "end": balance.end,
        "gpu_hours": _hours(balance.capacity),
        "not_observed_gpu_hours": _hours(balance.not_observed),
        "allocation_gpu_hours": {name: _hours(value) for name, value in balance.allocation.items()},
        "use_gpu_hours": {name: _hours(value) for name, value in balance.use.items()},
    }


def _quantities(total: Quantities) -> dict[str, Any]:
    return {
        "held_gpu_hours": _hours(total.held),
        "measured_gpu_hours": _hours(total.measured),
        "used_gpu_hours": _hours(total.used),
        "energy_kwh": total.kilowatt_hours,
    }


def _with_unknown(total: Quantities) -> dict[str, Any]:
    return _quantities(total) | {"unknown_share_hours": _hours(total.unshared)}


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / HOUR


def usage_csv(usage: Usage, prices: Prices | None = None) -> str:
    """Return a line for each group and kind of device.

    There is no line if the groups are unknown, which ``problems`` names and CSV has no place for.
    """
    rows = [
        _row(usage, group.name or None, kind, parts, prices)
        for group in usage.shown
        for kind, parts in group.kinds.items()
    ]
    return csv_text((*COLUMNS, *(_PRICED if prices else ())), rows)


def _row(
    usage: Usage, name: str | None, kind: Kind, parts: Quantities, prices: Prices | None
) -> tuple[Any, ...]:
    values = _quantities(parts).values()
    period = usage.period
    place = (round(period.start), round(period.end), usage.by, name, kind.model or None, kind.profile or None)
    cost = (cost_of_kind(kind, parts, prices).value, prices.currency) if prices else ()
    return (*place, *values, *cost)
