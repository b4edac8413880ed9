"""The command ``usage``."""

import json

from exporter.config import Settings
from exporter.fleet.commands import FAILED, print_unknown, read_once
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.targets import read_clock
from exporter.fleet.usage.documents import usage_csv, usage_json
from exporter.fleet.usage.focus import focus_days, require_account, require_prices
from exporter.fleet.usage.model import Usage
from exporter.fleet.usage.period import Period, period_of_month, period_since
from exporter.fleet.usage.prices import Prices, read_prices
from exporter.fleet.usage.reading import read_usage
from exporter.fleet.usage.text import usage_text
from exporter.output import print_text


async def print_usage(
    settings: Settings, *, month: tuple[int, int] | None, since: float, by: str, output: str
) -> int:
    """Print the usage of a month, or of the last ``since`` seconds.

    Return the exit code: 1 if something could not be read. Raises SettingsError for invalid prices, and
    without a Prometheus.
    """
    prices = None if settings.prices is None else read_prices(settings.prices)

    if output == "focus":
        return await _print_bill(settings, prices, month=month, since=since)

    async def read(prometheus: Prometheus) -> Usage:
        at = await read_clock(prometheus)
        return await read_usage(prometheus, at, _period(month, since, at), by)

    usage = await read_once(settings, read)
    if usage is None:
        return FAILED
    if output == "json":
        print_text(json.dumps(usage_json(usage, prices), indent=2) + "\n")
    elif output == "csv":
        print_text(usage_csv(usage, prices))
        print_unknown(usage.problems)
    else:
        print_text(usage_text(usage, prices))
    return FAILED if usage.problems else 0


def _period(month: tuple[int, int] | None, since: float, at: float) -> Period:
    return period_of_month(month, at) if month else period_since(since, at)


async def _print_bill(
    settings: Settings, prices: Prices | None, *, month: tuple[int, int] | None, since: float
) -> int:
    """Print the bill day by day, so that a month of a large cluster is never in memory."""
    prices = require_account(prices)

    async def bill(prometheus: Prometheus) -> bool:
        at = await read_clock(prometheus)
        period = _period(month, since, at)
        require_prices(await read_usage(prometheus, at, period, "namespace"), prices)
        whole = True
        async for text, lacks in focus_days(prometheus, at, period, prices):
            print_text(text)
            if lacks:
                print_unknown([f"{lacks}: not in the bill"])
                whole = False
        return whole

    return 0 if await read_once(settings, bill) else FAILED
