"""Usage as a bill in the columns of FOCUS 1.3, one row for each day, device and holder.

Columns: https://focus.finops.org/focus-specification/v1-3/. Those that 1.3 deprecates (ProviderName and
PublisherName) are there too: 1.2 requires them.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from exporter.config.parse import SettingsError
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.queries import Answers, ask_whole
from exporter.fleet.usage import queries
from exporter.fleet.usage.model import Kind, Quantities, Usage
from exporter.fleet.usage.period import HOUR, Period
from exporter.fleet.usage.prices import Prices, priced_hours
from exporter.fleet.usage.queries import Piece
from exporter.formats.json_csv import csv_text
from exporter.wording import plural, printable

UNIT = "GPU-Hours"
_SERVICE = "GPU"
_STEP = Decimal("0.000001")
_POD = ("cluster", "namespace", "pod")
_LABEL = "label_"
# What a bill reads of each holder, by what is priced.
_VALUES: Mapping[str, Sequence[str]] = {
    "held": ("held", "unshared"),
    "used": ("used", "held", "measured", "unshared"),
}
_Holders: TypeAlias = Mapping[tuple[str, ...], Sample]
_LabelsOfPods: TypeAlias = Mapping[tuple[str, ...], Mapping[str, str]]


class HeldDay(NamedTuple):
    """What a container held of a device on a day."""

    start: float
    """Unix time of the start of the day, or of its part in the period."""
    end: float
    holder: Mapping[str, str]
    """Labels: cluster, node, gpu, uuid, mig_uuid, namespace, pod and container."""
    kind: Kind
    hours: Decimal
    """GPU-hours that are priced: held, or used."""
    labels: Mapping[str, str]
    """Labels of the pod."""


class _Row(NamedTuple):
    """A row with what its columns come from."""

    held: HeldDay
    prices: Prices
    price: Decimal

    @property
    def account(self) -> str:
        return self.prices.account or ""

    @property
    def cost(self) -> Decimal:
        return self.price * self.held.hours

    def label(self, name: str) -> str | None:
        return self.held.holder.get(name) or None

    @property
    def namespace(self) -> str:
        return "/".join(filter(None, (self.label("cluster"), self.label("namespace"))))


def _account(row: _Row) -> str:
    return row.account


def _cost(row: _Row) -> str:
    return f"{row.cost:f}"


def _price(row: _Row) -> str:
    return f"{row.price:f}"


def _quantity(row: _Row) -> str:
    return f"{row.held.hours:f}"


def _sku(row: _Row) -> str:
    return str(row.held.kind)


_COLUMNS: Mapping[str, Callable[[_Row], str | None]] = {
    "BilledCost": _cost,
    "BillingAccountId": _account,
    "BillingAccountName": _account,
    "BillingAccountType": lambda _: "Account",
    "BillingCurrency": lambda row: row.prices.currency,
    "BillingPeriodEnd": lambda row: _date(_month(row.held.start)[1]),
    "BillingPeriodStart": lambda row: _date(_month(row.held.start)[0]),
    "ChargeCategory": lambda _: "Usage",
    "ChargeClass": lambda _: None,
    "ChargeDescription": lambda row: (
        f"{row.held.kind}, GPU-hours {row.prices.by} by {row.label('namespace')}/{row.label('pod')}"
    ),
    "ChargeFrequency": lambda _: "Usage-Based",
    "ChargePeriodEnd": lambda row: _date(row.held.end),
    "ChargePeriodStart": lambda row: _date(row.held.start),
    "ConsumedQuantity": _quantity,
    "ConsumedUnit": lambda _: UNIT,
    "ContractedCost": _cost,
    "ContractedUnitPrice": _price,
    "EffectiveCost": _cost,
    "HostProviderName": _account,
    # No invoice is issued here.
    "InvoiceId": lambda _: None,
    "InvoiceIssuerName": _account,
    "ListCost": _cost,
    "ListUnitPrice": _price,
    "PricingCategory": lambda _: "Standard",
    "PricingQuantity": _quantity,
    "PricingUnit": lambda _: UNIT,
    "ProviderName": _account,
    "PublisherName": _account,
    "ResourceId": lambda row: row.label("mig_uuid") or row.label("uuid"),
    "ResourceName": lambda row: f"GPU {row.label('gpu') or row.label('uuid')} of {row.label('node')}",
    "ResourceType": lambda row: "MIG device" if row.label("mig_uuid") else "GPU",
    "ServiceCategory": lambda _: "Compute",
    "ServiceName": lambda _: _SERVICE,
    "ServiceProviderName": _account,
    "ServiceSubcategory": lambda _: "Other (Compute)",
    "SkuId": _sku,
    "SkuMeter": lambda row: f"GPU-hours {row.prices.by}",
    "SkuPriceDetails": lambda _: None,
    "SkuPriceId": _sku,
    "SubAccountId": lambda row: row.namespace,
    "SubAccountName": lambda row: row.label("namespace"),
    "SubAccountType": lambda _: "Namespace",
    "Tags": lambda row: json.dumps(dict(sorted(row.held.labels.items()))),
    # Columns of our own have this prefix.
    "x_Cluster": lambda row: row.label("cluster"),
    "x_Container": lambda row: row.label("container"),
    "x_Node": lambda row: row.label("node"),
    "x_Pod": lambda row: row.label("pod"),
}
COLUMNS = tuple(_COLUMNS)


def require_account(prices: Prices | None) -> Prices:
    """Return the prices of a bill; raises SettingsError without prices or an account."""
    if prices is None:
        raise SettingsError("--format focus needs --prices: a file with prices, a currency and an account")
    if not prices.account:
        raise SettingsError(
            "--format focus needs an account in the file of --prices: the name of who is billed"
        )
    return prices


def require_prices(usage: Usage, prices: Prices) -> None:
    """Raise SettingsError if a device of the period has no price, and PrometheusError if that is unknown."""
    if usage.groups is None:
        raise PrometheusError("; ".join(usage.problems))
    kinds = sorted({kind for group in usage.shown for kind in group.kinds if prices.of(kind) is None})
    if kinds:
        names = ", ".join(printable(str(kind)) for kind in kinds)
        raise SettingsError(
            f"--format focus needs a price for {names} in the file of --prices; '*' is any model"
        )


async def focus_days(
    prometheus: Prometheus, at: float, period: Period, prices: Prices, only: Sequence[str] = ()
) -> AsyncIterator[tuple[str, str]]:
    """Yield the header, then the rows of each day as CSV, and what a day lacks as a sentence.

    With ``only`` they are those of the holders in these namespaces.

    Raises PrometheusError if a day cannot be read.
    """
    yield csv_text(COLUMNS, ()), ""
    for start, end in period.days():
        piece = Piece("hours", end, round((end - start) / HOUR))
        answers = await ask_whole(prometheus, queries.of_holders(piece, _VALUES[prices.by]), at)
        for name, why in answers.problems.items():
            raise PrometheusError(f"{name} of {_date(start)}: {why}; the file ends before that day")
        holders = {name: _by_holder(answers, name, only) for name in _VALUES[prices.by]}
        # Of labels that changed in the day the same ones count each time.
        seen = sorted(answers.samples("labels"), key=lambda sample: sorted(sample.labels.items()))
        labels = {sample.texts(*_POD): _labels(sample) for sample in seen}
        rows = _rows(holders[prices.by], labels, start, end, prices)
        lacks = ", ".join(_lacks(holders, prices))
        yield _text(rows), f"{_date(start)}: {lacks}" if lacks else ""


def _text(rows: list[_Row]) -> str:
    lines = ([_COLUMNS[name](row) for name in COLUMNS] for row in rows)
    return csv_text((), lines).partition("\r\n")[2]


def _by_holder(answers: Answers, value: str, only: Sequence[str]) -> _Holders:
    return {
        _key(sample): sample
        for sample in answers.samples(value)
        if (sample.value > 0 or value == "used") and (not only or sample.text("namespace") in only)
    }


def _rows(
    priced: _Holders,
    labels: _LabelsOfPods,
    start: float,
    end: float,
    prices: Prices,
) -> list[_Row]:
    """Return the rows of a day for what is priced of each holder."""
    return [
        _Row(
            HeldDay(
                start=start,
                end=end,
                holder=sample.labels,
                kind=_kind(sample),
                hours=(Decimal(sample.value) / Decimal(HOUR)).quantize(_STEP),
                labels=labels.get(sample.texts(*_POD), {}),
            ),
            prices,
            Decimal(str(price)),
        )
        for _, sample in sorted(priced.items())
        if (price := prices.of(_kind(sample))) is not None
    ]


def _lacks(holders: Mapping[str, _Holders], prices: Prices) -> Iterator[str]:
    """Yield what a bill has no row for, or a row for a part only."""
    priced, amount = holders[prices.by], "use" if prices.by == "used" else "share"
    holding = holders["held"].keys() | holders["unshared"].keys()
    known = [priced_hours(_quantities(holders, key), prices) for key in priced]
    for number, what in (
        (len(holding - priced.keys()), f"the {amount}"),
        (sum(bool(hours.missing) for hours in known), f"a part of the {amount}"),
        (sum(prices.of(_kind(sample)) is None for sample in priced.values()), "the price"),
    ):
        if number:
            yield f"{what} of {plural(number, 'holder')}"


def _quantities(holders: Mapping[str, _Holders], key: tuple[str, ...]) -> Quantities:
    return Quantities(**{name: found[key].value for name, found in holders.items() if key in found})


def _kind(sample: Sample) -> Kind:
    return Kind(*sample.texts("model", "profile"))


def _key(sample: Sample) -> tuple[str, ...]:
    return sample.texts(*queries.HOLDER_LABELS)


def _labels(sample: Sample) -> dict[str, str]:
    return {
        name.removeprefix(_LABEL): text for name, text in sample.labels.items() if name.startswith(_LABEL)
    }


def _month(at: float) -> tuple[float, float]:
    """Return start and end of the month of a Unix time."""
    first = datetime.fromtimestamp(at, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return first.timestamp(), following.timestamp()


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
