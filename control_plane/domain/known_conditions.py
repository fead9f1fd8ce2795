"""Conditions that our own rows show: an envelope that is exceeded, money that runs out, a promise that was broken."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.enforcement import Absent, Basis, Present, Symptom


@dataclass(frozen=True, slots=True)
class EnvelopeWarning:
    """What `watch_envelopes` stored about a lease that is outside of an envelope."""

    warned_at: datetime
    ends_at: datetime | None
    why: str


def envelope_symptom(warning: EnvelopeWarning | None) -> Symptom:
    if warning is None:
        return Absent("the lease is within its envelopes")
    why = warning.why.rstrip(".")
    if warning.ends_at is not None:
        why = f"{why}; otherwise the lease ends at {warning.ends_at:%Y-%m-%d %H:%M} UTC"
    return Present(
        warning.warned_at,
        why,
        Basis.OURS,
        {"warned_at": warning.warned_at.isoformat()},
        until=warning.ends_at,
    )


@dataclass(frozen=True, slots=True)
class FundingWarning:
    """What `fund_leases` stored about a lease whose next hour cannot be set aside."""

    warned_at: datetime
    until: datetime | None
    """When its machine is stopped or the lease ends, if nothing is paid in; None once it was stopped."""
    stops: bool
    """Whether the machine is stopped then, and its data kept."""


def funding_symptom(warning: FundingWarning | None) -> Symptom:
    if warning is None:
        return Absent("the next hour of the lease is set aside")
    then = "" if warning.until is None else f"; it {_then(warning)} at {warning.until:%H:%M} UTC"
    return Present(
        warning.warned_at,
        f"the next hour of the lease cannot be set aside{then}",
        Basis.OURS,
        {"warned_at": warning.warned_at.isoformat()},
        until=warning.until,
    )


def _then(warning: FundingWarning) -> str:
    return "is stopped" if warning.stops else "ends"


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken promise of a lease, as the clocks of the SLA stored it."""

    found_at: datetime
    why: str
    breaches: tuple[str, ...]
    """Ids on the wire."""
    credited_nano: int
    """What was posted for them."""
    waits: bool
    """Whether what is given back is not known or not posted yet."""


def breach_symptom(breach: Breach | None) -> Symptom:
    if breach is None:
        return Absent("nothing is given back for it")
    evidence = {"breaches": list(breach.breaches), "credited_nano": breach.credited_nano}
    return Present(
        breach.found_at,
        breach.why.rstrip("."),
        Basis.OURS,
        evidence,
        credited=not breach.waits and breach.credited_nano > 0,
    )
