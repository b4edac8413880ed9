"""The two balances of each GPU from poll to poll: its observed time by class.

A poll adds the time since the previous one, by the facts of this poll. Time that was not observed is not
counted: before a GPU is first listed, while polls fail, and a gap that is too long.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from exporter.attribution import Attribution, HoldingsIndex
from exporter.attribution.balance import allocation, use
from exporter.attribution.balance_facts import GpuRows, Shares, facts_of, rows_of_gpus, shares_of
from exporter.model.balances import (
    ALLOCATION_CLASSES,
    NANOSECONDS,
    USE_CLASSES,
    Balances,
    Class,
    divide,
)
from exporter.poll.accounting import MISSED_SECONDS


def _no_time() -> Balances:
    return Balances(
        observed=0, allocation=dict.fromkeys(ALLOCATION_CLASSES, 0), use=dict.fromkeys(USE_CLASSES, 0)
    )


@dataclass(slots=True)
class _Account:
    """The balances of one GPU."""

    seen: float  # time of the ledger in seconds at which it was last listed
    balances: Balances = field(default_factory=_no_time)
    # The shares of its holders that are known, as of a poll in which it answered.
    shares: Shares = field(default_factory=dict)


class BalanceLedger:
    """Keeps the balances of all GPUs from poll to poll.

    A gap of more than ``longest_gap`` seconds between two polls was not observed, as in ``Ledger``. A GPU
    that is not listed for an hour begins again at 0.
    """

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._time = 0.0
        self._accounts: dict[str, _Account] = {}
        self._listed: frozenset[str] = frozenset()

    def add(
        self,
        attribution: Attribution,
        held: HoldingsIndex,
        elapsed: float,
        fresh: Collection[str],
        *,
        confirmed: bool,
    ) -> Attribution:
        """Add one poll and return its rows with the balances of each GPU.

        ``elapsed``: seconds since the previous poll. ``fresh``: UUIDs of the GPUs with a new reading.
        ``confirmed``: whether the kubelet has reported the allocations in this poll.
        """
        self._time += elapsed
        observed = round(elapsed * NANOSECONDS) if elapsed <= self._longest_gap else 0
        gpus = []
        for rows in rows_of_gpus(attribution):
            uuid = rows.gpu.identity.uuid
            account = self._accounts.setdefault(uuid, _Account(self._time))
            account.seen = self._time
            shares = _known_shares(account, rows, held)
            if uuid in self._listed and observed:
                facts = facts_of(rows, held.holdings, shares, confirmed=confirmed, fresh=fresh)
                allocated = allocation(facts)
                account.balances = Balances(
                    observed=account.balances.observed + observed,
                    allocation=_sum(account.balances.allocation, divide(observed, allocated)),
                    use=_sum(account.balances.use, divide(observed, use(facts.use, allocated["held"]))),
                )
            gpus.append(replace(rows.gpu, balances=account.balances))
        self._listed = frozenset(row.identity.uuid for row in gpus)
        oldest = self._time - MISSED_SECONDS
        self._accounts = {uuid: kept for uuid, kept in self._accounts.items() if kept.seen >= oldest}
        return replace(attribution, gpus=tuple(gpus))


def _known_shares(account: _Account, rows: GpuRows, held: HoldingsIndex) -> Shares:
    """Return the shares of the holders of a GPU; while it does not answer, those that it had before.

    Without its readings, the memory that a share is a part of is unknown.
    """
    shares = shares_of(rows, held)
    if rows.down:
        return {key: account.shares.get(key) if share is None else share for key, share in shares.items()}
    account.shares = shares
    return shares


def _sum(amounts: Mapping[Class, int], more: Mapping[Class, int]) -> dict[Class, int]:
    return {name: amount + more[name] for name, amount in amounts.items()}
