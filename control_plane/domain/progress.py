"""The steps between a request and a ready lease, as a customer watches them."""

from enum import StrEnum

from control_plane.domain.proof import Tier, challenged


class Step(StrEnum):
    """In this order. Evidence of progress; no decision depends on it."""

    PLACED = "placed"
    LAUNCHED = "launched"
    BOOTED = "booted"
    CONNECTED = "connected"
    GPUS_VERIFIED = "gpus_verified"
    GPUS_PROVEN = "gpus_proven"
    """Only where the SKU demands proof. The last step of the machine itself."""
    MESH_JOINED = "mesh_joined"
    """The first step of the customer's claim: from here on the machine serves one organization."""
    KEYS_INSTALLED = "keys_installed"
    """The last one, so that nobody is on a machine before it is known to be what was sold."""


CLAIM_STEPS = frozenset({Step.MESH_JOINED, Step.KEYS_INSTALLED})
"""Steps of a claim. The others are the machine's own, whether anybody claims it or not."""


def steps_for(demanded: Tier) -> tuple[Step, ...]:
    """The steps that a lease takes whose machine has to prove `demanded`, in their order."""
    return tuple(step for step in Step if step is not Step.GPUS_PROVEN or challenged(demanded))
