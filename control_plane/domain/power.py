"""The power of a leased machine: reboots, stops and starts that its customer asks for, and how each comes out.

    ON --reboot--> REBOOTING --done--> ON            REBOOTING, STOPPING --failed--> ON
    ON --stop----> STOPPING  --done--> OFF           STARTING --failed--> OFF
    OFF, ON --start-> STARTING --done--> ON          STARTING --unreachable, stays_on--> ON
    OFF --found_on--> ON
    ON --found_off--> OFF (downtime.py)

It is a record beside the machine's state, because the machine stays VERIFIED and its lease READY: the customer keeps
both. A machine without a record is ON.

A request is stored before the provider is asked (law 1). When the provider's answer is lost, the machine is looked at,
and asked again only if the look shows that nothing happened: a stopped machine that is stopped once more comes to no
harm, and a machine that is rebooted twice loses what its customer began in between. The boot id, which Linux makes
anew at each boot, tells whether it was rebooted. The machine reports it, and lying about it costs only its own customer
another reboot.

A change has CHANGE_MAX. What was not reached then is said in the lease's journal and on the lease. The machine is kept:
losing contact is no failure (law 5), and its disk is its customer's. If it is gone, the provider's lists say so.

The price follows the provider's lists alone, and never a request or its refusal: the price while stopped applies from
the first list that shows a machine stopped whose stop was asked for, until the first one that shows it running again.
One that was down before the request (`downtime.py`) was stopped since the last list that showed it running.
A machine that is OFF is watched, because a request that seemed to fail may take effect later, and because others can
start it as well (docs/decisions/0053).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import ClaimId, LaunchKey, LeaseId, MachineId, OrganizationId, ProviderRef
from control_plane.domain.listed_state import ListedState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table

CHANGE_MAX = timedelta(minutes=10)
"""How long after the request a machine may take to be reachable again, or to be off."""
ASK_AGAIN_AFTER = timedelta(minutes=2)
"""How long a provider has to show an effect when its answer was lost."""
LISTS_FAIL_AFTER = timedelta(minutes=1)
"""How long after CHANGE_MAX a list may take. Accounts are listed every two seconds, so their lists fail then."""
LOOK_EVERY = timedelta(seconds=5)
REQUESTS_WITHIN = timedelta(hours=1)
REQUESTS_MAX = 20
"""Requests for one lease within REQUESTS_WITHIN: each is a call of a provider that every customer shares, and each
stop and start cuts an interval, a charge and lines of the journal.
"""


class PowerState(StrEnum):
    ON = "on"
    REBOOTING = "rebooting"
    STOPPING = "stopping"
    OFF = "off"
    STARTING = "starting"


class PowerEvent(StrEnum):
    REBOOT = "reboot"
    """The customer asked for it."""
    STOP = "stop"
    START = "start"
    DONE = "done"
    """The look shows it: the machine booted anew and answers, or the provider lists it as stopped."""
    FAILED = "failed"
    """The provider refused, or nothing had happened at the end of CHANGE_MAX."""
    FOUND_OFF = "found_off"
    """Its provider lists it as stopped for an hour, though nobody asked for that (`downtime.py`)."""
    UNREACHABLE = "unreachable"
    """The provider lists it as running, and it did not answer within CHANGE_MAX."""
    STAYS_ON = "stays_on"
    """The start of a machine that was on came to nothing."""
    FOUND_ON = "found_on"
    """The provider lists a machine as running that was off: somebody else started it, or an earlier request did."""


_S = PowerState
_E = PowerEvent

NEXT: dict[tuple[PowerState, PowerEvent], PowerState] = {
    (_S.ON, _E.REBOOT): _S.REBOOTING,
    (_S.ON, _E.STOP): _S.STOPPING,
    (
        _S.ON,
        _E.START,
    ): _S.STARTING,  # It may have stopped by itself, as a machine does that its user shuts down.
    (_S.OFF, _E.START): _S.STARTING,
    (_S.ON, _E.FOUND_OFF): _S.OFF,
    (_S.REBOOTING, _E.DONE): _S.ON,
    (_S.REBOOTING, _E.FAILED): _S.ON,
    (_S.REBOOTING, _E.UNREACHABLE): _S.ON,
    (_S.STOPPING, _E.DONE): _S.OFF,
    (_S.STOPPING, _E.FAILED): _S.ON,
    (_S.STARTING, _E.DONE): _S.ON,
    (_S.STARTING, _E.FAILED): _S.OFF,
    (_S.STARTING, _E.UNREACHABLE): _S.ON,
    (_S.STARTING, _E.STAYS_ON): _S.ON,
    (_S.OFF, _E.FOUND_ON): _S.ON,
}
CHANGING = {
    _S.REBOOTING: PowerAction.REBOOT,
    _S.STOPPING: PowerAction.STOP,
    _S.STARTING: PowerAction.START,
}
"""States in which a request is open, and what it asks for."""
ALREADY = frozenset(
    {
        (_S.REBOOTING, PowerAction.REBOOT),
        (_S.STOPPING, PowerAction.STOP),
        (_S.OFF, PowerAction.STOP),
        (_S.STARTING, PowerAction.START),
    }
)
"""Where a request asks for what is being done, or was done: it changes nothing."""


def step(
    state: PowerState, event: PowerEvent
) -> Moved[PowerState, PowerEvent] | Ignored[PowerState, PowerEvent]:
    return step_table(NEXT, state, event)


def too_many(recent: int) -> Refused | None:
    """Why no request is taken of a lease with so many within REQUESTS_WITHIN; None when one is."""
    if recent < REQUESTS_MAX:
        return None
    why = f"The power of this lease's machine was changed {recent} times within an hour; wait, and ask once."
    return Refused(RefusalCode.POWER_REQUESTS_TOO_MANY, why)


@dataclass(frozen=True, slots=True)
class Power:
    """The power of a machine as it is stored now."""

    state: PowerState
    generation: int
    wanted_at: datetime
    """When the last change was asked for."""
    settled_at: datetime | None
    """When it came out; None while it is open."""
    why: str | None
    """Why it failed, or why an open one is not done after CHANGE_MAX; None otherwise."""


@dataclass(frozen=True, slots=True)
class PowerChange:
    """A machine that is off or whose power is changed, with what is known about it and where it is."""

    claim_id: ClaimId
    organization_id: OrganizationId
    lease_id: LeaseId
    machine_id: MachineId
    state: PowerState
    generation: int
    stopped: bool
    """Whether its price while stopped applies."""
    tries: int
    """How often the provider did not take the request."""
    wanted_at: datetime
    asked_at: datetime | None
    """When the provider was last asked; None before that, and when it did not take the request."""
    accepted: bool
    """Whether it answered that it does it. False also when its answer was lost."""
    boot_id: str | None
    """The machine's boot id before a reboot; None when the machine did not answer."""
    listed: ListedState | None
    """As the provider listed the machine at `listed_at`, in a list from after the request."""
    listed_from: datetime | None
    """The first list of those that show it as `listed` without a break."""
    listed_at: datetime | None
    launch_key: LaunchKey
    provider_ref: ProviderRef | None
    address: str | None
    ssh_port: int
    host_key: str | None

    @property
    def action(self) -> PowerAction:
        return CHANGING[self.state]

    @property
    def deadline_at(self) -> datetime:
        return self.wanted_at + CHANGE_MAX

    @property
    def listed_since(self) -> ListedState | None:
        """As the provider listed it after it was asked; None while no list is from then."""
        if self.asked_at is None or self.listed_at is None or self.listed_at <= self.asked_at:
            return None
        return self.listed


@dataclass(frozen=True, slots=True)
class Boot:
    """What a machine that answers says about the boot that it is in."""

    id: str
    began_at: datetime
    """By our clock: the moment of the answer, less the time for which the machine says that it is up."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the provider."""


@dataclass(frozen=True, slots=True)
class Look:
    """Look again later."""

    why: str | None = None
    """What keeps it open after CHANGE_MAX."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The change has come out."""

    event: PowerEvent
    why: str | None = None
    switches_at: datetime | None = None
    """The list from which on the other price applies; None when the price stays."""


def before_asking(change: PowerChange, now: datetime) -> Ask | Settle:
    """What to do with a change that the provider was not asked for, or did not take."""
    if now < change.deadline_at:
        return Ask()
    return _unchanged(change, "the provider did not take the request within ten minutes")


def refused(change: PowerChange, why: str) -> Settle:
    """The provider definitely refuses the change. It says nothing about where the machine is: its lists do."""
    return _unchanged(change, why)


def found_on(change: PowerChange) -> Settle:
    """A machine that was off is listed as running."""
    return _settle(change, PowerEvent.FOUND_ON)


def is_worth_a_visit(change: PowerChange) -> bool:
    """Whether to try to reach the machine: it says whether it was rebooted, and whether it is up."""
    if change.state is PowerState.STARTING:
        return change.listed_since is ListedState.RUNNING
    return change.state is PowerState.REBOOTING


def after_asking(change: PowerChange, boot: Boot | None, now: datetime) -> Ask | Look | Settle:
    """What a look at the machine means. `boot` is what the machine says now; None when it does not answer."""
    if change.asked_at is None:
        raise ValueError(f"the provider was never asked to {change.action} {change.machine_id}")
    if _is_done(change, change.asked_at, boot):
        return _settle(change, PowerEvent.DONE)
    if change.listed_at is not None and change.deadline_at <= change.listed_at:
        return _overdue(change, boot, f"the provider lists it as {change.listed}")
    if now >= change.deadline_at + LISTS_FAIL_AFTER:
        return _unlisted(change, boot)
    lost = not change.accepted and now - change.asked_at >= ASK_AGAIN_AFTER
    return Ask() if lost and _had_no_effect(change, change.asked_at, boot) else Look()


def _is_done(change: PowerChange, asked_at: datetime, boot: Boot | None) -> bool:
    match change.state:
        case PowerState.STOPPING:
            return change.listed_since is ListedState.STOPPED
        case PowerState.STARTING:
            return change.listed_since is ListedState.RUNNING and boot is not None
        case _:
            return boot is not None and _is_another(change, asked_at, boot)


def _had_no_effect(change: PowerChange, asked_at: datetime, boot: Boot | None) -> bool:
    match change.state:
        case PowerState.STOPPING:
            return change.listed_since is ListedState.RUNNING
        case PowerState.STARTING:
            return change.listed_since is ListedState.STOPPED
        case _:
            return boot is not None and not _is_another(change, asked_at, boot)


def _is_another(change: PowerChange, asked_at: datetime, boot: Boot) -> bool:
    """Whether a machine is in another boot than before its reboot. One that did not answer before it has no id to
    compare with, so the boot has to have begun after the provider was asked.
    """
    return boot.began_at > asked_at if change.boot_id is None else boot.id != change.boot_id


def _overdue(change: PowerChange, boot: Boot | None, shown: str) -> Settle:
    match change.state:
        case PowerState.STOPPING:
            return _unchanged(change, f"{shown} still after ten minutes")
        case PowerState.REBOOTING if boot is not None:
            return _settle(change, PowerEvent.FAILED, "it was not rebooted within ten minutes")
        case PowerState.STARTING if change.listed is not ListedState.RUNNING:
            return _unchanged(change, f"{shown} after ten minutes")
        case _:
            why = f"it did not answer within ten minutes; {shown}"
            return _settle(change, PowerEvent.UNREACHABLE, why)


def _unlisted(change: PowerChange, boot: Boot | None) -> Look | Settle:
    """The time is over and the provider's lists fail. A stop stays open, because only a list can show it, and the
    price depends on it.
    """
    shown = "the provider's lists cannot be read"
    if change.state is PowerState.STOPPING:
        return Look(f"{shown}, so nobody knows whether it stopped")
    return _overdue(change, boot, shown)


def _unchanged(change: PowerChange, why: str) -> Settle:
    """The end of a change that came to nothing, as far as the request is concerned. Where the machine is, the lists
    show; without one, it is where it was.
    """
    if change.state is PowerState.STOPPING and change.listed is ListedState.STOPPED:
        return _settle(change, PowerEvent.DONE)
    if change.state is not PowerState.STARTING:
        return _settle(change, PowerEvent.FAILED, why)
    off = change.stopped if change.listed not in _KNOWN else change.listed is ListedState.STOPPED
    return _settle(change, PowerEvent.FAILED if off else PowerEvent.STAYS_ON, why)


_KNOWN = frozenset({ListedState.RUNNING, ListedState.STOPPED})


def _settle(change: PowerChange, event: PowerEvent, why: str | None = None) -> Settle:
    stopped = NEXT[change.state, event] is PowerState.OFF
    return Settle(event, why, change.listed_from if stopped is not change.stopped else None)
