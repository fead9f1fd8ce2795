"""Whether a running lease can go on: holds are renewed ahead of time, so a balance is never overspent.

A hold sets an hour aside. When half of it is used, it is filled up again. When the balance no
longer covers that, the customer is warned once; when the hold itself is nearly used, the lease
ends. Between the warning and the end lie at least `RENEW_BELOW - END_BELOW` of paid time.
"""

from dataclasses import dataclass
from datetime import timedelta

from control_plane.domain.admission import HOLD_SECONDS
from control_plane.domain.money import Nano, accrued, usd

RENEW_BELOW = timedelta(minutes=30)
END_BELOW = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Funding:
    nano_per_gpu_hour: Nano
    gpu_count: int
    held_nano: Nano
    """Set aside now, posted charges already taken out of it."""
    unposted_nano: Nano
    """Used, but not yet posted."""
    available_nano: Nano
    """The organization's posted balance less all its open holds."""
    warned: bool

    def cost_of(self, duration: timedelta) -> Nano:
        return accrued(self.nano_per_gpu_hour, self.gpu_count * int(duration.total_seconds()))


@dataclass(frozen=True, slots=True)
class Keep:
    """Enough is set aside."""


@dataclass(frozen=True, slots=True)
class Renew:
    more_nano: Nano


@dataclass(frozen=True, slots=True)
class Warn:
    why: str


@dataclass(frozen=True, slots=True)
class End:
    why: str


def decide(funding: Funding) -> Keep | Renew | Warn | End:
    left = funding.held_nano - funding.unposted_nano
    if left >= funding.cost_of(RENEW_BELOW):
        return Keep()
    more = funding.cost_of(timedelta(seconds=HOLD_SECONDS)) - left
    if funding.available_nano >= more:
        return Renew(Nano(more))
    if left < funding.cost_of(END_BELOW):
        return End(
            f"{usd(funding.available_nano)} USD is available and the next hour needs {usd(Nano(more))} more."
        )
    if funding.warned:
        return Keep()
    return Warn(
        f"{usd(funding.available_nano)} USD is available and the next hour needs {usd(Nano(more))} more;"
        " top up, or the lease ends when its hold is used."
    )
