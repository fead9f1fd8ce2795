"""The state machine of an organization: a tenant, from its creation to the erasure of its personal data.

    ACTIVE --suspended--> SUSPENDED --resumed--> ACTIVE
       `---closure requested---+---> CLOSING --settled--> CLOSED --deleted--> DELETED

What a state means for API keys and for spending is in `EFFECTS`, and in words for leases, keys, data and money. A
closure cannot be taken back: its API keys are refused and its leases end in the same transaction. CLOSING ends only on
evidence (`Unsettled`): every machine is gone, all usage is posted and no money is held.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.money import Nano
from control_plane.domain.permission import Permission
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class OrganizationState(StrEnum):
    ACTIVE = "active"
    """It leases and pays."""
    SUSPENDED = "suspended"
    """It spends nothing new; what runs, runs on the money that is held for it."""
    CLOSING = "closing"
    """Its API keys are refused and its leases end. Machines may still live, and usage may not be posted yet."""
    CLOSED = "closed"
    """Nothing is alive, all usage is posted, nothing is held. The remaining balance is stated."""
    DELETED = "deleted"
    """Its personal data is erased. The ledger and the journal stay."""


class OrganizationEvent(StrEnum):
    SUSPENDED = "suspended"
    """An operator suspended it. Once more while it is suspended: with another reason, or to end its leases."""
    RESUMED = "resumed"
    """An operator ended its suspension."""
    CLOSURE_REQUESTED = "closure_requested"
    """An operator closed it."""
    SETTLED = "settled"
    """The evidence is complete: every lease has ended, all usage is posted and no money is held."""
    DELETED = "deleted"
    """An operator had its personal data erased."""


class Access(StrEnum):
    """What the API keys of an organization open."""

    FULL = "full"
    READ_AND_RELEASE = "read_and_release"
    """They read, quote, release leases, and revoke or delete keys."""
    NONE = "none"
    """They are refused like unknown keys."""


_S = OrganizationState
_E = OrganizationEvent

NEXT: dict[tuple[OrganizationState, OrganizationEvent], OrganizationState] = {
    (_S.ACTIVE, _E.SUSPENDED): _S.SUSPENDED,
    (_S.SUSPENDED, _E.SUSPENDED): _S.SUSPENDED,
    (_S.SUSPENDED, _E.RESUMED): _S.ACTIVE,
    (_S.ACTIVE, _E.CLOSURE_REQUESTED): _S.CLOSING,
    (_S.SUSPENDED, _E.CLOSURE_REQUESTED): _S.CLOSING,
    (_S.CLOSING, _E.SETTLED): _S.CLOSED,
    (_S.CLOSED, _E.DELETED): _S.DELETED,
}

REPEATED: Mapping[OrganizationEvent, frozenset[OrganizationState]] = {
    _E.CLOSURE_REQUESTED: frozenset({_S.CLOSING, _S.CLOSED, _S.DELETED}),
    _E.DELETED: frozenset({_S.DELETED}),
}
"""States in which an operator may ask again for what was done already: the first record is the answer."""
TERMINAL = frozenset({_S.DELETED})
OPEN = frozenset({_S.ACTIVE, _S.SUSPENDED})
"""Its API keys are known."""
NEVER_OF_THE_PLATFORM = frozenset({_E.SUSPENDED, _E.CLOSURE_REQUESTED, _E.DELETED})
"""Events that the organization of those who run the installation is spared: nobody could take them back."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a state means for an organization. Code asks for `access` and `spends`; the sentences are for people."""

    access: Access
    spends: bool
    """Whether leases are admitted and placed, and holds renewed."""
    new_leases: str
    running_leases: str
    keys: str
    data: str
    money: str


EFFECTS: Mapping[OrganizationState, Effects] = {
    _S.ACTIVE: Effects(
        Access.FULL,
        spends=True,
        new_leases="Admitted by quota, price and balance.",
        running_leases="Run; their holds are renewed from the balance.",
        keys="Open everything that their roles allow.",
        data="Kept.",
        money="Top-ups and credits are posted, holds placed, usage charged.",
    ),
    _S.SUSPENDED: Effects(
        Access.READ_AND_RELEASE,
        spends=False,
        new_leases="Refused with `organization_suspended`. Leases that wait for a machine keep waiting, until they"
        " give up.",
        running_leases="Run on what is held for them, and end as `unfunded` when it is used. If the operator's reason"
        " demands it, all of them end at once as `organization_suspended`.",
        keys="Read, quote, release leases, and revoke or delete keys; anything else is refused with"
        " `organization_suspended`.",
        data="Kept.",
        money="Top-ups and credits are posted and usage is charged; no hold is placed or renewed.",
    ),
    _S.CLOSING: Effects(
        Access.NONE,
        spends=False,
        new_leases="None; a creation that is under way is refused, or ended by the closure.",
        running_leases="All are ended by the closure, as `organization_closed`, and so are leases that wait. Machines"
        " are terminated until their providers confirm it.",
        keys="All are revoked. Requests, replays and open event streams are refused or ended.",
        data="Kept.",
        money="Usage until the closure is charged; a hold keeps what is still to be posted. Nothing else is held.",
    ),
    _S.CLOSED: Effects(
        Access.NONE,
        spends=False,
        new_leases="None.",
        running_leases="None: every machine is confirmed gone.",
        keys="Refused.",
        data="Kept, for operators.",
        money="All usage is posted and nothing is held. The remaining balance is stated in the organization's record.",
    ),
    _S.DELETED: Effects(
        Access.NONE,
        spends=False,
        new_leases="None.",
        running_leases="None.",
        keys="Refused; their names are erased.",
        data="Names, SSH keys, labels and stored answers are erased, and sealed secrets cannot be opened any more. The"
        " ledger, charges and journals stay, with ids.",
        money="The ledger stays as it is, with the balance that remained.",
    ),
}


def step(
    state: OrganizationState, event: OrganizationEvent
) -> Moved[OrganizationState, OrganizationEvent] | Ignored[OrganizationState, OrganizationEvent]:
    return step_table(NEXT, state, event)


_ACTIONS_WHILE_SUSPENDED = frozenset({"read", "read_all", "release", "revoke", "delete"})


def allows(state: OrganizationState, permission: Permission) -> bool:
    """Whether an organization in this state may use a permission that one of its API keys has."""
    match EFFECTS[state].access:
        case Access.FULL:
            return True
        case Access.READ_AND_RELEASE:
            action = permission.value.partition(".")[2]
            return action in _ACTIONS_WHILE_SUSPENDED or permission is Permission.QUOTES_CREATE
        case Access.NONE:
            return False


NOTHING = Nano(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a suspension or a closure ended."""

    waiting_leases: int = 0
    """Leases that waited for a machine."""
    starting_leases: int = 0
    ready_leases: int = 0
    ending_leases: int = 0
    """Leases that were ending before."""
    api_keys: int = 0
    released_nano: Nano = NOTHING
    """Money that is no longer held for the leases that it ended."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """What still keeps an organization from being closed, as numbers of rows."""

    leases: int
    """Leases that have not ended: a machine of theirs may be alive."""
    unmetered: int
    """Ended leases whose usage is not fully metered."""
    unrated: int
    """Intervals without a charge."""
    holds: int
    """Holds that are not released."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left, so that the organization can be closed."""
        return not (self.leases or self.unmetered or self.unrated or self.holds)

    def __str__(self) -> str:
        parts = (
            (self.leases, "leases have not ended"),
            (self.unmetered, "leases are not metered"),
            (self.unrated, "intervals are not rated"),
            (self.holds, "holds are open"),
        )
        return ", ".join(f"{count} {what}" for count, what in parts if count) or "nothing is left"
