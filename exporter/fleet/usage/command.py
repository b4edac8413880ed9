"""The command ``usage``."""

import json

from exporter.config import Settings
from exporter.fleet.commands import FAILED, print_unknown, read_once
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.targets import read_clock
from exporter.fleet.usage.documents import usage_csv, usage_json
from exporter.fleet.usage.model import Usage
from exporter.fleet.usage.period import period_of_month, period_since
from exporter.fleet.usage.prices import read_prices
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

    async def read(prometheus: Prometheus) -> Usage:
        at = await read_clock(prometheus)
        period = period_of_month(month, at) if month else period_since(since, at)
        return await read_usage(prometheus, at, period, by)

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
