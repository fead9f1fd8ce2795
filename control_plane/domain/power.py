"""The power of a leased machine: reboots, stops and starts that its customer asks for, and how each comes out.

    ON --reboot--> REBOOTING --done--> ON            REBOOTING, STOPPING --failed--> ON
    ON --stop----> STOPPING  --done--> OFF           STARTING --failed--> OFF
    OFF, ON --start-> STARTING --done--> ON          STARTING --unreachable--> ON

It is a record beside the machine's state, because the machine stays VERIFIED and its lease READY: the customer keeps
both. A machine without a record is ON.

A request is stored before the provider is asked (law 1). When the provider's answer is lost, the machine is looked at,
and asked again only if the look shows that nothing happened: a stopped machine that is stopped once more comes to no
harm, and a machine that is rebooted twice loses what its customer began in between. The boot id, which Linux makes
anew at each boot, tells whether it was rebooted. The machine reports it, and lying about it costs only its own customer
another reboot.

A change has CHANGE_MAX. What was not reached then is said in the lease's journal and on the lease. The machine is kept:
losing contact is no failure (law 5), and its disk is its customer's. If it is gone, the provider's lists say so.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import ClaimId, LaunchKey, LeaseId, MachineId, OrganizationId, ProviderRef
from control_plane.domain.power_action import PowerAction
from control_plane.domain.sighting import ListedState
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table

CHANGE_MAX = timedelta(minutes=10)
"""How long after the request a machine may take to be reachable again, or to be off."""
ASK_AGAIN_AFTER = timedelta(minutes=2)
"""How long a provider has to show an effect when its answer was lost."""
LOOK_EVERY = timedelta(seconds=5)


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
    UNREACHABLE = "unreachable"
    """The provider lists it as running, and it did not answer within CHANGE_MAX."""


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
    (_S.REBOOTING, _E.DONE): _S.ON,
    (_S.REBOOTING, _E.FAILED): _S.ON,
    (_S.REBOOTING, _E.UNREACHABLE): _S.ON,
    (_S.STOPPING, _E.DONE): _S.OFF,
    (_S.STOPPING, _E.FAILED): _S.ON,
    (_S.STARTING, _E.DONE): _S.ON,
    (_S.STARTING, _E.FAILED): _S.OFF,
    (_S.STARTING, _E.UNREACHABLE): _S.ON,
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


def switches_price(moved: Moved[PowerState, PowerEvent]) -> bool:
    """Whether the price of a stopped machine applies from this move on, or ends with it.

    It applies while the machine is OFF: not before the provider is seen to have stopped it, and no longer than until
    its start is asked for.
    """
    return (moved.before is PowerState.OFF) is not (moved.after is PowerState.OFF)


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
    """Why it failed; None when it did not, and while it is open."""


@dataclass(frozen=True, slots=True)
class PowerChange:
    """A change that is open, with what is known about it and where the machine is."""

    claim_id: ClaimId
    organization_id: OrganizationId
    lease_id: LeaseId
    machine_id: MachineId
    state: PowerState
    generation: int
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
    """As the provider listed the machine at `listed_at`."""
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
class Ask:
    """Ask the provider."""


@dataclass(frozen=True, slots=True)
class Look:
    """Look again later."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The change has come out."""

    event: PowerEvent
    why: str | None = None


def before_asking(change: PowerChange, now: datetime) -> Ask | Settle:
    """What to do with a change that the provider was not asked for, or did not take."""
    if now < change.deadline_at:
        return Ask()
    return Settle(_unchanged(change), "the provider did not take the request within ten minutes")


def refused(change: PowerChange, why: str) -> Settle:
    """The provider definitely refuses the change."""
    return Settle(_unchanged(change), why)


def is_worth_a_visit(change: PowerChange) -> bool:
    """Whether to try to reach the machine: it says whether it was rebooted, and whether it is up."""
    if change.state is PowerState.STARTING:
        return change.listed_since is ListedState.RUNNING
    return change.state is PowerState.REBOOTING


def after_asking(change: PowerChange, boot_id: str | None, now: datetime) -> Ask | Look | Settle:
    """What a look at the machine means. `boot_id` is what the machine reports now; None when it does not answer."""
    if change.asked_at is None:
        raise ValueError(f"the provider was never asked to {change.action} {change.machine_id}")
    if _is_done(change, boot_id):
        return Settle(PowerEvent.DONE)
    listed_late = change.listed_at is not None and change.listed_at >= change.deadline_at
    if now >= change.deadline_at and listed_late:
        return _overdue(change, boot_id)
    lost = not change.accepted and now - change.asked_at >= ASK_AGAIN_AFTER
    return Ask() if lost and _had_no_effect(change, boot_id) else Look()


def _is_done(change: PowerChange, boot_id: str | None) -> bool:
    match change.state:
        case PowerState.STOPPING:
            return change.listed_since is ListedState.STOPPED
        case PowerState.STARTING:
            return change.listed_since is ListedState.RUNNING and boot_id is not None
        case _:
            # A machine that did not answer before its reboot, and does now, came back from it.
            return boot_id is not None and boot_id != change.boot_id


def _had_no_effect(change: PowerChange, boot_id: str | None) -> bool:
    match change.state:
        case PowerState.STOPPING:
            return change.listed_since is ListedState.RUNNING
        case PowerState.STARTING:
            return change.listed_since is ListedState.STOPPED
        case _:
            return boot_id is not None and boot_id == change.boot_id


def _overdue(change: PowerChange, boot_id: str | None) -> Settle:
    listed = change.listed
    match change.state:
        case PowerState.STOPPING:
            return Settle(PowerEvent.FAILED, f"the provider still lists it as {listed} after ten minutes")
        case PowerState.REBOOTING if boot_id is not None:
            return Settle(PowerEvent.FAILED, "it was not rebooted within ten minutes")
        case _ if listed is ListedState.STOPPED:
            event = PowerEvent.FAILED if change.state is PowerState.STARTING else PowerEvent.UNREACHABLE
            return Settle(event, "the provider lists it as stopped after ten minutes")
        case _:
            why = f"it did not answer within ten minutes; the provider lists it as {listed}"
            return Settle(PowerEvent.UNREACHABLE, why)


def _unchanged(change: PowerChange) -> PowerEvent:
    """The end of a change that did not happen. Only a machine that the provider lists as stopped is off."""
    stays_on = change.state is PowerState.STARTING and change.listed is ListedState.RUNNING
    return PowerEvent.UNREACHABLE if stays_on else PowerEvent.FAILED
