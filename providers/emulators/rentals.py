"""The machines of an emulated account: bought, booting, running, ending, listed for a while, gone.

A cloud's contract adds its own fields to `Rental`, and has its own words for each `Life`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar

from control_plane.domain.gpu import APPEARANCES, GpuModel
from providers.emulators.host import EmulatedGpu, HostedState, MachineHost, MachineSpec, SwitchesMachines
from providers.emulators.scenario import FaultKind, Scenario


class Life(StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    """It is off, and keeps its disk."""
    FAILED = "failed"
    SOLD_OUT = "sold_out"
    """Its launch was accepted, and then there was no place for it."""
    ENDING = "ending"
    """Its end was accepted."""
    ENDED = "ended"
    """It is still listed."""
    FORGOTTEN = "forgotten"
    """The API does not know it any more."""


@dataclass(kw_only=True)
class Rental:
    """One machine, as a customer rents it."""

    id: str
    native_type: str
    native_region: str
    launched_at: datetime = field(init=False)
    listed_from: datetime = field(init=False)
    never_boots: bool = field(init=False, default=False)
    sold_out: bool = field(init=False, default=False)
    hidden: bool = field(init=False, default=False)
    """It is never listed."""
    running_since: datetime | None = field(init=False, default=None)
    stopped_at: datetime | None = field(init=False, default=None)
    """Since when it is off; None while it is on."""
    seconds_off_before: int = field(init=False, default=0)
    """For how long it was off until it was switched on again."""
    ended_at: datetime | None = field(init=False, default=None)
    """When its end was accepted."""
    unknown_status: str | None = field(init=False, default=None)
    """A status word outside the specification, which listings show; for tests."""

    @property
    def stock_name(self) -> str:
        """The type whose stock it is from, in the scenario."""
        return self.native_type


Own = TypeVar("Own", bound=Rental)


@dataclass
class Rentals(Generic[Own]):
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    ending_seconds: float
    ended_visible_seconds: float
    """How long a machine stays listed after its end."""
    every: dict[str, Own] = field(default_factory=dict[str, Own])
    """Every machine that ever existed, by its id."""

    def standing(self) -> list[Own]:
        """Those that cost money or will, hidden ones too."""
        return [each for each in self.every.values() if each.ended_at is None]

    def listed(self) -> list[Own]:
        now = self.now()
        return [
            each
            for each in self.every.values()
            if not each.hidden and each.listed_from <= now and self.life(each) is not Life.FORGOTTEN
        ]

    def known(self, rental_id: str) -> Own | None:
        """The machine, if the API still knows it."""
        found = self.every.get(rental_id)
        return found if found is not None and self.life(found) is not Life.FORGOTTEN else None

    def life(self, rental: Own) -> Life:
        if rental.ended_at is not None:
            ended = (self.now() - rental.ended_at).total_seconds()
            if ended < self.ending_seconds:
                return Life.ENDING
            return Life.ENDED if ended < self.ending_seconds + self.ended_visible_seconds else Life.FORGOTTEN
        if rental.sold_out:
            return Life.SOLD_OUT
        machine = self.host.machines().get(rental.id)
        if machine is None or machine.state is HostedState.FAILED:
            return Life.FAILED
        if rental.never_boots or machine.state is HostedState.BOOTING:
            return Life.CREATING
        if self.now() - rental.launched_at < timedelta(seconds=self.scenario.boot_delay_seconds):
            return Life.CREATING
        rental.running_since = rental.running_since or self.now()
        return Life.RUNNING if rental.stopped_at is None else Life.STOPPED

    def address(self, rental: Own) -> str | None:
        """The address of its machine, once it runs."""
        machine = self.host.machines().get(rental.id)
        return machine.address if machine is not None and self.life(rental) is Life.RUNNING else None

    async def launch(self, rental: Own, model: GpuModel | None, gpus: int, *, user_data: str) -> Own:
        """Begin to boot it. Faults of the scenario that concern the machine itself take effect here."""
        take = self.scenario.take
        rental.launched_at = self.now()
        rental.listed_from = self.now() + timedelta(seconds=self.scenario.list_lag_seconds)
        rental.never_boots = take("launch", FaultKind.NEVER_BOOTS)
        rental.hidden = take("launch", FaultKind.HIDDEN)
        rental.sold_out = take("launch", FaultKind.SOLD_OUT_LATER)
        installed = GpuModel.A10_24GB if take("launch", FaultKind.WRONG_GPU) else model
        if not rental.sold_out:
            await self.host.boot(MachineSpec(rental.id, user_data, cards_of(installed, gpus)))
        self.every[rental.id] = rental
        return rental

    async def end(self, rental: Own) -> None:
        """End it, unless that was asked for before; its place is for sale again."""
        if rental.ended_at is not None:
            return
        self.life(rental)  # Records since when it ran, for the bill.
        rental.ended_at = self.now()
        self.scenario.put_back(rental.stock_name, rental.native_region)
        await self.host.destroy(rental.id)

    async def switch(self, rental: Own, *, off: bool) -> bool:
        """Switch it off, or boot it. False where its host cannot, or while it neither runs nor is stopped."""
        if not isinstance(self.host, SwitchesMachines):
            return False
        if self.life(rental) not in (Life.RUNNING, Life.STOPPED):
            return False
        rental.seconds_off_before = self.seconds_off(rental)
        rental.stopped_at = self.now() if off else None
        await self.host.switch(rental.id, off=off)
        return True

    def seconds_off(self, rental: Own) -> int:
        """For how long it was off until now or until its end."""
        since = rental.stopped_at
        now = 0 if since is None else int(((rental.ended_at or self.now()) - since).total_seconds())
        return rental.seconds_off_before + now

    def seconds_run(self, rental: Own) -> int:
        """For how long it ran until now or until its end, or was off meanwhile: what most clouds bill."""
        self.life(rental)
        if rental.running_since is None:
            return 0
        return max(0, int(((rental.ended_at or self.now()) - rental.running_since).total_seconds()))


def cards_of(model: GpuModel | None, count: int) -> tuple[EmulatedGpu, ...]:
    """The cards that a machine's emulated NVML shows."""
    if model is None:
        return ()
    looks = APPEARANCES[model]
    return (EmulatedGpu(min(looks.nvml_names), looks.memory_mib[0]),) * count
