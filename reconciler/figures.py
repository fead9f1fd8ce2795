"""The business metrics, as they were read from the database last. A scrape reads this memory and never the database.

Every replica that runs the wing `housekeeping` exports the same figures, so a query over replicas takes `max`, not
`sum`. Labels are states, providers, regions, GPU models, and our accounts, clusters and warm pools: never ids, so their
number stays small.
"""

from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import REGISTRY, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from control_plane.db.cluster_figures import ClusterFigures, PoolCount
from control_plane.db.data_keys import Counts as KeyCounts
from control_plane.db.figures import (
    AccountFigures,
    LeaseCount,
    Liability,
    MachineCount,
    OrganizationCount,
    UnratedMoney,
)
from control_plane.db.repair_figures import RepairFigures
from control_plane.db.sla_credits import Undecided
from control_plane.db.warm_pool_figures import WarmPoolFigures
from control_plane.domain.lease import LIVE, LeaseState
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.organization import OrganizationState
from reconciler.cluster_metrics import of_clusters
from reconciler.repair_metrics import of_repairs
from reconciler.warm_pool_metrics import of_warm_pools

VANISHED = Counter(
    "splitplane_machines_vanished", "Machines that their provider no longer lists.", ("account",)
)
READY_SECONDS = Histogram(
    "splitplane_lease_ready_seconds",
    "From the first order of a machine for a lease until its customer can log in: failed machines are included, the"
    " wait for stock is not.",
    buckets=(5, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600),
)
Tally = Counts[tuple[str, ...]]
"""Numbers by the values of their labels."""
SHOWN_STATES = tuple(state for state in LeaseState if state in LIVE or state is LeaseState.ENDING)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one reading of the database found."""

    at: datetime
    leases: Sequence[LeaseCount]
    unmetered: int
    silent_agents: int
    machines: Sequence[MachineCount]
    unclaimed: Liability
    accounts: Sequence[AccountFigures]
    unrated: UnratedMoney
    undecided: Undecided
    organizations: Sequence[OrganizationCount]
    clusters: Sequence[ClusterFigures]
    node_pools: Sequence[PoolCount]
    warm_pools: Sequence[WarmPoolFigures]
    repairs: RepairFigures


@dataclass(frozen=True, slots=True)
class Audit:
    """What one walk over the whole ledger found."""

    at: datetime
    postings: int
    difference: Nano


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What the last reconciliation of a month came to that is done."""

    month: str
    """`running` or `last`."""
    examined_at: datetime
    differing_customers: int
    difference: Nano
    """What all links differ by, each as a positive amount."""


class FigureCollector(Collector):
    """Holds the last reading, the last audit and the last reconciliations, and shows them.

    They are replaced as a whole.
    """

    def __init__(self) -> None:
        self.figures: Figures | None = None
        self.audit: Audit | None = None
        self.reconciled: Sequence[Reconciled] = ()

    def collect(self) -> Iterator[Metric]:
        if (figures := self.figures) is not None:
            yield _gauge("figures_read_timestamp_seconds", "When the business metrics were read.", figures.at)
            yield from _of_leases(figures)
            yield from _of_machines(figures.machines)
            yield from _of_liabilities(figures)
            yield from _of_accounts(figures.accounts)
            yield from _of_unrated(figures.unrated)
            yield from _of_undecided(figures.undecided)
            yield from _of_organizations(figures.organizations)
            yield from of_clusters(figures.clusters, figures.node_pools)
            yield from of_warm_pools(figures.warm_pools)
            yield from of_repairs(figures.repairs)
        if (audit := self.audit) is not None:
            yield _gauge("ledger_audited_timestamp_seconds", "When the ledger was added up.", audit.at)
            yield _gauge("ledger_postings", "Postings that were added up.", audit.postings)
            yield _gauge(
                "ledger_difference_usd", "The sum of all postings, which has to be 0.", _usd(audit.difference)
            )
        if self.reconciled:
            yield from _of_reconciliations(self.reconciled)


class RotationCollector(Collector):
    """Shows how far the rotation of keys is, as `rotate_keys` counted it last."""

    def __init__(self) -> None:
        self.counts: KeyCounts | None = None

    def collect(self) -> Iterator[Metric]:
        if (counts := self.counts) is None:
            return
        yield _gauge("secrets", "Sealed secrets.", counts.secrets)
        yield _gauge("data_keys", "Data keys that secrets are encrypted under.", counts.data_keys)
        waiting = _labelled("data_keys_waiting", "Data keys that the rotation has not reached yet.", "what")
        waiting.add_metric(("rewrap",), counts.to_rewrap)
        waiting.add_metric(("replace",), counts.to_replace)
        yield waiting


FIGURES = FigureCollector()
ROTATION = RotationCollector()
REGISTRY.register(FIGURES)
REGISTRY.register(ROTATION)


def _usd(amount: Nano) -> float:
    """An amount for a graph. The ledger's own amounts are never floats."""
    return amount / NANO_PER_USD


def _gauge(name: str, help_text: str, value: float | datetime | None = None) -> GaugeMetricFamily:
    number = value.timestamp() if isinstance(value, datetime) else value
    return GaugeMetricFamily(f"splitplane_{name}", help_text, value=number)


def _labelled(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"splitplane_{name}", help_text, labels=labels)


def _of_leases(figures: Figures) -> Iterator[Metric]:
    counts = {count.state: count.leases for count in figures.leases}
    leases = _labelled("leases", "Leases by state. Ended ones are not counted.", "state")
    for state in SHOWN_STATES:
        leases.add_metric((state,), counts.get(state, 0))
    yield leases
    waiting = sum(count.waiting for count in figures.leases)
    yield _gauge("leases_waiting", "Leases that wait for stock.", waiting)
    yield _gauge(
        "leases_unattended",
        "Leases without a machine yet that were not looked at within a minute of the time when they were due.",
        sum(count.unattended for count in figures.leases),
    )
    yield _gauge(
        "leases_unmetered", "Ready leases whose meter has not advanced for two hours.", figures.unmetered
    )
    yield _gauge(
        "agents_silent", "Agents that reported before, and have not for five minutes.", figures.silent_agents
    )


def _of_machines(counts: Sequence[MachineCount]) -> Iterator[Metric]:
    """The same labels may come more than once, from several accounts of a provider: they are added up."""
    machines, gpus, missed = Tally(), Tally(), Tally()
    for count in counts:
        machines[count.account, count.state] += count.machines
        if count.gpu_model is not None:
            gpus[count.provider, count.region, count.gpu_model] += count.gpus
        missed[(count.account,)] += count.missed
    alive = "Machines that may exist, by state. Those that are gone are not counted."
    yield _tallied(_labelled("machines", alive, "account", "state"), machines)
    held = _labelled("gpus_held", "GPUs of machines that may exist.", "provider", "region", "gpu_model")
    yield _tallied(held, gpus)
    yield _tallied(
        _labelled("machines_missed", "Machines that the last listing did not show.", "account"), missed
    )


def _tallied(family: GaugeMetricFamily, tally: Tally) -> Metric:
    for labels, number in tally.items():
        family.add_metric(labels, number)
    return family


def _of_liabilities(figures: Figures) -> Iterator[Metric]:
    yield _gauge(
        "machines_unclaimed", "Machines that may exist and that no lease claims.", figures.unclaimed.machines
    )
    rate = _labelled(
        "open_liabilities_usd_per_hour", "What machines that serve nobody cost per hour.", "kind"
    )
    cost = _labelled(
        "open_liabilities_usd", "What machines that serve nobody have cost since they serve nobody.", "kind"
    )
    orphans = figures.accounts
    rate.add_metric(("unclaimed",), _usd(figures.unclaimed.nano_per_hour))
    rate.add_metric(("orphan",), _usd(Nano(sum(account.orphans_nano_per_hour for account in orphans))))
    cost.add_metric(("unclaimed",), _usd(figures.unclaimed.nano))
    cost.add_metric(("orphan",), _usd(Nano(sum(account.orphans_nano for account in orphans))))
    yield from (rate, cost)


def _of_accounts(accounts: Sequence[AccountFigures]) -> Iterator[Metric]:
    yield from _of_orphans(accounts)
    yield _flags(
        "account_frozen",
        "1 while nothing is concluded from the account's listings.",
        [(account.name, account.frozen_since) for account in accounts],
    )
    yield _flags(
        "account_failing",
        "1 while the account's machines cannot be listed.",
        [(account.name, account.failing_since) for account in accounts],
    )
    yield _flags(
        "account_offers_failing",
        "1 while the account's offers cannot be listed.",
        [(account.name, account.offers_failing_since) for account in accounts],
    )
    yield _times(
        "account_offers_timestamp_seconds",
        "When the account's offers were listed last.",
        [(account.name, account.offers_at) for account in accounts],
    )
    yield _times(
        "account_listing_timestamp_seconds",
        "When the account's machines were listed last.",
        [(account.name, account.listing_asked_at) for account in accounts],
    )


def _of_orphans(accounts: Sequence[AccountFigures]) -> Iterator[Metric]:
    orphans = _labelled("orphans", "Machines under our launch keys that no record claims.", "account")
    unpriced = _labelled(
        "orphans_unpriced", "Orphans without a known price, which are in no amount.", "account"
    )
    for account in accounts:
        orphans.add_metric((account.name,), account.orphans)
        unpriced.add_metric((account.name,), account.orphans_unpriced)
    yield from (orphans, unpriced)
    yield _times(
        "orphans_oldest_timestamp_seconds",
        "When the oldest orphan was first seen.",
        [(account.name, account.oldest_orphan_at) for account in accounts],
    )


def _flags(name: str, help_text: str, since: Sequence[tuple[str, datetime | None]]) -> Metric:
    """1 for each account for which something lasts, and 0 for the others."""
    family = _labelled(name, help_text, "account")
    for account, at in since:
        family.add_metric((account,), at is not None)
    return family


def _times(name: str, help_text: str, times: Sequence[tuple[str, datetime | None]]) -> Metric:
    """One sample for each account that has such a time."""
    family = _labelled(name, help_text, "account")
    for account, at in times:
        if at is not None:
            family.add_metric((account,), at.timestamp())
    return family


def _of_unrated(unrated: UnratedMoney) -> Iterator[Metric]:
    yield _gauge("unrated_intervals", "Metered intervals without a charge.", unrated.intervals)
    yield _gauge("unrated_usd", "The price of metered use without a charge.", _usd(unrated.nano))
    oldest = _gauge("unrated_oldest_timestamp_seconds", "When the oldest such interval was recorded.")
    if unrated.oldest_at is not None:
        oldest.add_metric((), unrated.oldest_at.timestamp())
    yield oldest


def _of_undecided(undecided: Undecided) -> Iterator[Metric]:
    yield _gauge(
        "sla_credits_undecided", "Broken promises with a credit that waits for finance.", undecided.breaches
    )
    yield _gauge("sla_credits_undecided_usd", "What waits of them.", _usd(Nano(undecided.nano)))
    oldest = _gauge("sla_credits_undecided_oldest_timestamp_seconds", "Since when the first one waits.")
    if undecided.oldest_at is not None:
        oldest.add_metric((), undecided.oldest_at.timestamp())
    yield oldest


def _of_reconciliations(months: Sequence[Reconciled]) -> Iterator[Metric]:
    difference = _labelled(
        "reconciliation_difference_usd",
        "What the links of a month's last reconciliation differ by, which has to be 0.",
        "month",
    )
    differing = _labelled(
        "reconciliation_differing_customers", "Customers with a link that differs in it.", "month"
    )
    for one in months:
        difference.add_metric((one.month,), _usd(one.difference))
        differing.add_metric((one.month,), one.differing_customers)
    yield from (difference, differing)
    yield _gauge(
        "reconciliation_timestamp_seconds",
        "When the last reconciliation was done.",
        max(one.examined_at for one in months),
    )


def _of_organizations(counts: Sequence[OrganizationCount]) -> Iterator[Metric]:
    known = {count.state: count for count in counts}
    organizations = _labelled("organizations", "Organizations by state.", "state")
    oldest = _labelled(
        "organizations_unfinished_since_timestamp_seconds",
        "Since when the first organization is closing, or deleted and not erased yet.",
        "state",
    )
    for state in OrganizationState:
        count = known.get(state)
        organizations.add_metric((state,), count.organizations if count else 0)
        if count is not None and count.oldest_at is not None:
            oldest.add_metric((state,), count.oldest_at.timestamp())
    yield from (organizations, oldest)
