"""What an hour of use of an offer really costs us: by this, and not by the listed price, offers are ranked.

To the listed price come the time that a provider bills until a customer can use the machine, what it rounds up at the
end, and the orders that fail before one succeeds. All figures are whole numbers, and the result is rounded up.
"""

from dataclasses import dataclass

from control_plane.domain.money import NANO_MAX, Nano

USE_SECONDS = 4 * 3_600
"""How long a lease is taken to last. Nobody says beforehand; the shorter it is, the more setting up counts."""
FAILED_TRY_SECONDS = 600
"""What a machine that fails costs us in time of it, besides what its provider bills: our customer waits that long."""
GOOD_TRIES_ASSUMED = 10
"""As many good machines are assumed of every offer besides those that it had, so that one failure proves little."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a provider bills, and how long it takes."""

    setup_seconds: int = 0
    """Billed before a customer can use the machine."""
    increment_seconds: int = 1
    """What the provider rounds the time of a machine up to."""
    minimum_seconds: int = 0
    """What the provider bills of a machine at least."""
    billed_while_booting: bool = True
    """Whether the provider bills a machine from its order on, or from when it runs."""


@dataclass(frozen=True, slots=True)
class History:
    """What became lately of the machines that a provider accepted to deliver for an offer."""

    tried: int = 0
    failed: int = 0
    """Those that no customer could use. A refused order is no failure: it costs nothing, and blocks the offer."""


def effective_nano_per_hour(listed: Nano, terms: Terms, history: History) -> Nano:
    """The cost of an hour of use, at least the listed price.

    A failed machine is billed for its setting up, and is expected as often as the history says.
    """
    billed = _billed(USE_SECONDS + terms.setup_seconds, terms)
    wasted = (_billed(terms.setup_seconds, terms) if terms.setup_seconds else 0) + FAILED_TRY_SECONDS
    good = history.tried - history.failed + GOOD_TRIES_ASSUMED
    nano = -(-listed * (billed * good + wasted * history.failed) // (USE_SECONDS * good))
    return Nano(min(nano, NANO_MAX))


def _billed(seconds: int, terms: Terms) -> int:
    rounded = -(-seconds // terms.increment_seconds) * terms.increment_seconds
    return max(rounded, terms.minimum_seconds)
