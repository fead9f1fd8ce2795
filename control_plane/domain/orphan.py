"""An orphan is a machine that a provider lists under a launch key of ours and that no open record matches.

Terminating one is the most dangerous thing that the reconciler does: after a restore from an old backup the machines
of customers look like orphans. A record is committed before each order, so a machine that has none means that records
were lost. Such a machine is held until an operator decides, and disarms its account. Any other orphan is only watched
at first, few are terminated at a time, none on a frozen account, and none when too much of a list looks orphaned: that
disarms the account as well, because the rest of such a list may be machines of customers even when few are left.
Each one that is not terminated has its reason stored beside it. An operator who has looked may decide on single orphans
(docs/decisions/0047): to end one, which overrides every reason but a record of another account that claims the machine;
to leave it, so that nothing here ends it; or that its own record adopts it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import AccountName, LaunchKey, MachineId, ProviderRef
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano

LISTS_MIN = 2
"""How many lists have to show an orphan before it may be terminated."""
GRACE = timedelta(minutes=2)
"""How long an orphan is only watched: a record may be about to claim it."""
TERMINATED_PER_RUN_MAX = 5
DECIDED_PER_RUN_MAX = 10
"""Of those whose termination an operator decided; they do not count towards the bound above."""
LEAK_MAX = 3
"""Up to this many orphans count as leaked machines, whatever their share of a list."""
SHARE_MAX_PERCENT = 20
"""When orphans exceed both LEAK_MAX and this share of a list, we assume that our records were lost."""


class Choice(StrEnum):
    """What an operator may decide about an orphan. The last decision counts."""

    END = "end"
    """It is terminated by the next run, whatever holds it back."""
    LEAVE = "leave"
    """It is not terminated, until an operator decides otherwise."""
    ADOPT = "adopt"
    """Its own record takes it, in place of a machine that the provider does not list."""
    REVOKE = "revoke"
    """The decision before this one no longer counts."""


class HeldCode(StrEnum):
    """Why an orphan is not terminated."""

    OTHER_ACCOUNT = "other_account"
    LEFT = "left"
    ADOPTING = "adopting"
    UNRECORDED = "unrecorded"
    WATCHED = "watched"
    ACCOUNT_FAILING = "account_failing"
    ACCOUNT_FROZEN = "account_frozen"
    LOST_RECORDS = "lost_records"
    TOO_MANY = "too_many"
    NOT_ARMED = "not_armed"
    DRY_RUN = "dry_run"
    NEXT_RUN = "next_run"


class Origin(StrEnum):
    """How a machine became an orphan, as far as our records tell."""

    LOST_ANSWER = "lost_answer"
    LATE_SUCCESS = "late_success"
    SECOND_MACHINE = "second_machine"
    LISTED_AGAIN = "listed_again"
    OTHER_ACCOUNT = "other_account"
    UNRECORDED = "unrecorded"


ORIGIN_WHY: Mapping[Origin, str] = {
    Origin.LOST_ANSWER: (
        "The answer to its launch was lost, and it was not listed before the search for it was given up."
    ),
    Origin.LATE_SUCCESS: "The provider refused the order, and launched the machine all the same.",
    Origin.SECOND_MACHINE: "One order made two machines: our record has another id of the provider.",
    Origin.LISTED_AGAIN: "The provider had listed it as ended, or had not listed it any more.",
    Origin.OTHER_ACCOUNT: (
        "Its order was placed at another account of ours: both may be the same account of the provider."
    ),
    Origin.UNRECORDED: (
        "No record says that it was ordered, and one is written before each order: records of ours were lost, or"
        " another tool copied the name. It may be a customer's."
    ),
}


@dataclass(frozen=True, slots=True)
class Order:
    """What our record tells about the order of a launch key."""

    id: MachineId
    launch_key: LaunchKey
    account: AccountName
    provider_ref: ProviderRef | None
    asked_at: datetime | None
    """When the provider was asked for it; None when our record says that it never was."""
    fail_reason: FailReason | None
    cost_nano_per_hour: Nano
    state: MachineState
    listed: bool
    """Whether the provider's last list that is evidence shows the machine that the record has."""
    gone_evidence: str | None
    """Why its record is closed; None while it is open."""


_REFUSED = frozenset(
    {FailReason.NO_CAPACITY, FailReason.QUOTA_REACHED, FailReason.ORDER_REFUSED, FailReason.UNAUTHORIZED}
)


def origin(order: Order | None, account: AccountName, ref: ProviderRef) -> Origin:
    """How the machine became an orphan that an account lists as `ref`. None: no record has its launch key.

    A record of an order that was never requested is none: it was made before what we know of was lost.
    """
    if order is None:
        return Origin.UNRECORDED
    if order.account != account:
        return Origin.OTHER_ACCOUNT
    if order.asked_at is None:
        return Origin.UNRECORDED
    if order.provider_ref is None:
        return Origin.LATE_SUCCESS if order.fail_reason in _REFUSED else Origin.LOST_ANSWER
    return Origin.LISTED_AGAIN if order.provider_ref == ref else Origin.SECOND_MACHINE


def why_not_adopted(order: Order | None, account: AccountName, ref: ProviderRef) -> str | None:
    """Why the record of its launch key cannot take the machine that an account lists as `ref`; None when it can.

    It can while it waits for a machine to boot that the provider does not list: nobody has reached that one, and should
    it be listed again, it is an orphan like any other.
    """
    if order is None:
        return "No record has its launch key."
    if order.account != account:
        return f"Its record is one of the account {order.account}."
    if order.state is MachineState.GONE:
        return f"Its record is closed, and stays so: {order.gone_evidence or 'nothing was ordered'}."
    if order.state is not MachineState.BOOTING:
        return f"Its record is {order.state}, and takes a machine only while it is booting."
    if order.provider_ref == ref:
        return "Its record has it already."
    if order.listed:
        return f"Its record has the machine {order.provider_ref}, which the provider lists."
    return None


@dataclass(frozen=True, slots=True)
class Held:
    """Why an orphan is not terminated now, as a code and as a sentence."""

    code: HeldCode
    why: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """An orphan, with how long it has been watched."""

    provider_ref: ProviderRef
    launch_key: LaunchKey
    origin: Origin
    first_seen_at: datetime
    lists_seen: int
    terminate_asked_at: datetime | None = None
    """When we first asked the provider to terminate it."""
    choice: Choice | None = None
    """What an operator decided; None when nobody did, or the decision was revoked."""
    decided_at: datetime | None = None
    decided_by: str | None = None
    """The operator's API key, as on the wire."""
    decided_why: str | None = None
    not_adopted_why: str | None = None
    """Why its record could not take it, as the last list showed it."""
    other_account: AccountName | None = None
    """The account of the open record that has its launch key, when that is another account."""

    @property
    def asked_lately(self) -> bool:
        """Whether its termination was requested since it is listed."""
        return self.terminate_asked_at is not None and self.terminate_asked_at >= self.first_seen_at


@dataclass(frozen=True, slots=True)
class Verdict:
    terminate: tuple[Orphan, ...]
    held: Mapping[ProviderRef, Held]
    """The reason of every other orphan."""
    disarm_why: str | None = None
    """Why the account has to be disarmed; None when it stays as it is."""


def to_terminate(
    orphans: Sequence[Orphan],
    *,
    listing_size: int,
    frozen_why: str | None,
    failing_why: str | None = None,
    armed: bool,
    disarmed_why: str | None = None,
    dry_run: bool = False,
    now: datetime,
) -> Verdict:
    """The orphans of an account to terminate now, those that an operator decided first, and why the others are held.

    `listing_size` counts the live machines of this installation on the account's last list. `frozen_why` and
    `failing_why` are None unless the account is frozen, or its machines cannot be listed. An account is `armed` once an
    operator allowed it. Until then it shows what would be terminated; `disarmed_why` says why it no longer is.
    """
    held = {
        orphan.provider_ref: _elsewhere(orphan.other_account) for orphan in orphans if orphan.other_account
    }
    ours = [orphan for orphan in orphans if orphan.other_account is None]
    held |= {orphan.provider_ref: _kept(orphan) for orphan in ours if orphan.choice in _KEPT}
    decided = sorted((orphan for orphan in ours if orphan.choice is Choice.END), key=_turn)
    others = sorted((orphan for orphan in ours if orphan.choice is None), key=_turn)
    unrecorded = [orphan for orphan in others if orphan.origin is Origin.UNRECORDED]
    held |= {orphan.provider_ref: _UNRECORDED for orphan in unrecorded}
    others = [orphan for orphan in others if orphan.origin is not Origin.UNRECORDED]
    held |= {orphan.provider_ref: _WATCHED for orphan in others if not _ripe(orphan, now)}
    others = [orphan for orphan in others if _ripe(orphan, now)]
    ripe = len(others) + sum(_ripe(orphan, now) for orphan in decided)
    take = decided[:DECIDED_PER_RUN_MAX]
    held |= {orphan.provider_ref: _NEXT_DECIDED for orphan in decided[DECIDED_PER_RUN_MAX:]}
    lost = _lost_records(len(unrecorded), listing_size)
    breaker = (
        _unlisted(frozen_why, failing_why)
        or lost
        or _too_many(ripe, listing_size)
        or _not_allowed(armed=armed, disarmed_why=disarmed_why, dry_run=dry_run)
    )
    tripped = lost or (breaker if breaker is not None and breaker.code is HeldCode.TOO_MANY else None)
    if breaker is not None:
        held |= {orphan.provider_ref: breaker for orphan in others}
    else:
        take += others[:TERMINATED_PER_RUN_MAX]
        held |= {orphan.provider_ref: _NEXT for orphan in others[TERMINATED_PER_RUN_MAX:]}
    return Verdict(tuple(take), held, disarm_why=tripped.why if armed and tripped is not None else None)


def _elsewhere(account: AccountName) -> Held:
    why = (
        f"The account {account} has an open record of its launch key, so it is no orphan: both names may stand for one"
        " account of the provider."
    )
    return Held(HeldCode.OTHER_ACCOUNT, why)


_KEPT = frozenset({Choice.LEAVE, Choice.ADOPT})


def _kept(orphan: Orphan) -> Held:
    """Why an orphan is kept that an operator decided to keep."""
    by = f"{orphan.decided_by} decided it: {orphan.decided_why}"
    if orphan.choice is Choice.LEAVE:
        return Held(HeldCode.LEFT, f"It is left alone. {by}")
    why = orphan.not_adopted_why or "the next run gives it to its record."
    return Held(HeldCode.ADOPTING, f"It is to be adopted, and not ended meanwhile: {why} {by}")


_UNRECORDED = Held(HeldCode.UNRECORDED, f"{ORIGIN_WHY[Origin.UNRECORDED]} Nothing but a decision ends it.")
_WATCHED = Held(
    HeldCode.WATCHED,
    f"It is watched until {LISTS_MIN} lists and {GRACE // timedelta(minutes=1)} minutes have shown it.",
)
_NEXT = Held(
    HeldCode.NEXT_RUN, f"At most {TERMINATED_PER_RUN_MAX} are terminated per run; others come first."
)
_NEXT_DECIDED = Held(
    HeldCode.NEXT_RUN,
    f"At most {DECIDED_PER_RUN_MAX} that an operator decided are terminated per run; others come first.",
)


def _ripe(orphan: Orphan, now: datetime) -> bool:
    return orphan.lists_seen >= LISTS_MIN and now - orphan.first_seen_at >= GRACE


def _turn(orphan: Orphan) -> tuple[bool, datetime, ProviderRef]:
    """Those never asked for come first, so that a few that do not end never keep the others waiting."""
    asked = orphan.terminate_asked_at
    return (asked is not None, asked or orphan.first_seen_at, orphan.provider_ref)


def _unlisted(frozen_why: str | None, failing_why: str | None) -> Held | None:
    """Why the account's last list is no ground to terminate anything."""
    if failing_why is not None:
        return Held(HeldCode.ACCOUNT_FAILING, f"The account's machines cannot be listed: {failing_why}")
    if frozen_why is not None:
        return Held(HeldCode.ACCOUNT_FROZEN, f"The account is frozen: {frozen_why}")
    return None


def _lost_records(unrecorded: int, listing_size: int) -> Held | None:
    """Why no orphan ends while machines without a record wait for a decision: what our records say of others may be
    as old as the backup that they come from.
    """
    if unrecorded == 0:
        return None
    why = (
        f"{unrecorded} of {listing_size} machines have no record of their order, so records of ours were lost."
        " An operator has to decide on each of them."
    )
    return Held(HeldCode.LOST_RECORDS, why)


def _too_many(ripe: int, listing_size: int) -> Held | None:
    if ripe <= LEAK_MAX or ripe * 100 <= listing_size * SHARE_MAX_PERCENT:
        return None
    why = (
        f"{ripe} of {listing_size} machines look like orphans; it is more likely that our records were lost."
    )
    return Held(HeldCode.TOO_MANY, why)


def _not_allowed(*, armed: bool, disarmed_why: str | None, dry_run: bool) -> Held | None:
    if not armed and disarmed_why is not None:
        return Held(HeldCode.NOT_ARMED, f"The account was disarmed: {disarmed_why}")
    if not armed:
        return Held(HeldCode.NOT_ARMED, "The account is not armed: it only shows what would be terminated.")
    if dry_run:
        return Held(
            HeldCode.DRY_RUN, "The reconciler runs with SPLITPLANE_ORPHANS_DRY_RUN and only reports orphans."
        )
    return None
