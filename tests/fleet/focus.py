"""The rules of FOCUS 1.3 for the columns of a bill, as far as they concern single rows.

Published at https://focus.finops.org/focus-specification/v1-3/. ``focus-validator`` needs Python 3.12,
and brings the rules of 1.2: docs/usage.md has what it finds.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

Row = Mapping[str, str]
MANDATORY = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd"),
    *("ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost"),
    *("PricingQuantity", "PricingUnit", "ServiceCategory", "ServiceName", "ServiceProviderName"),
    *("HostProviderName", "ProviderName", "PublisherName"),
)
NULLABLE = {"ChargeClass", "InvoiceId", "SkuPriceDetails", "x_Cluster"}
DECIMALS = (
    *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"),
    *("ConsumedQuantity", "PricingQuantity", "ContractedUnitPrice", "ListUnitPrice"),
)
DATES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
VALUES = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"AI and Machine Learning", "Compute", "Other"},
    "ServiceSubcategory": {"Containers", "Virtual Machines", "Serverless Compute", "Other (Compute)"},
}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_DECIMAL = re.compile(r"-?\d+(\.\d+)?")
_COLUMN = re.compile(r"([A-Z][a-z]+)+|x_([A-Z][a-z]+)+")


def _tags(row: Row) -> bool:
    tags = json.loads(row["Tags"])
    return isinstance(tags, dict) and all(isinstance(value, str | int | bool) for value in tags.values())


_CHECKS: Mapping[str, Callable[[Row], bool]] = {
    "currency is a code": lambda row: bool(re.fullmatch("[A-Z]{3}", row["BillingCurrency"])),
    "dates are in UTC": lambda row: all(_DATE.fullmatch(row[name]) for name in DATES),
    "decimals are plain": lambda row: all(_DECIMAL.fullmatch(row[name]) for name in DECIMALS),
    "values are allowed": lambda row: all(row[name] in allowed for name, allowed in VALUES.items()),
    "charge is in the billing period": lambda row: (
        row["BillingPeriodStart"]
        <= row["ChargePeriodStart"]
        < row["ChargePeriodEnd"]
        <= row["BillingPeriodEnd"]
    ),
    "cost is price by quantity": lambda row: (
        Decimal(row["ContractedUnitPrice"]) * Decimal(row["PricingQuantity"])
        == Decimal(row["ContractedCost"])
        and Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"]) == Decimal(row["ListCost"])
    ),
    "tags are an object": _tags,
}


def broken_rules(columns: list[str], rows: list[Row]) -> set[str]:
    """Return the rules that a bill breaks."""
    broken = {f"{name} is missing" for name in MANDATORY if name not in columns}
    broken |= {f"{name} is not a name" for name in columns if not _COLUMN.fullmatch(name)}
    for row in rows:
        broken |= {f"{name} is null" for name in columns if not row[name] and name not in NULLABLE}
        broken |= {what for what, holds in _CHECKS.items() if not holds(row)}
    return broken
