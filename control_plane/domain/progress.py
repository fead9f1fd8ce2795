"""The steps between a request and a ready lease, as a customer watches them."""

from enum import StrEnum

from control_plane.domain.lease import LeaseKind
from control_plane.domain.node import JoinStep
from control_plane.domain.proof import Tier, challenged


class Step(StrEnum):
    """The steps in their order. They show progress; no decision depends on them."""

    PLACED = "placed"
    LAUNCHED = "launched"
    BOOTED = "booted"
    CONNECTED = "connected"
    GPUS_VERIFIED = "gpus_verified"
    GPUS_PROVEN = "gpus_proven"
    """The last step of the machine itself. Taken only when the SKU demands proof."""
    MESH_JOINED = "mesh_joined"
    """The first step of the customer's claim: from here on the machine serves one organization."""
    CERTIFICATES_ACCEPTED = "certificates_accepted"
    """The last step, so that no customer can log in before the machine is known to be what was sold."""


CLAIM_STEPS = frozenset({Step.MESH_JOINED, Step.CERTIFICATES_ACCEPTED})
"""The steps of a claim. All others are steps of the machine, claimed or not."""


def steps_for(demanded: Tier, kind: LeaseKind) -> tuple[Step | JoinStep, ...]:
    """The steps of a lease whose machine has to prove `demanded`, in their order.

    After the steps of the machine, one to log in to has those of its claim, and a node those of joining its cluster.
    """
    of_machine = [
        step
        for step in Step
        if step not in CLAIM_STEPS and (step is not Step.GPUS_PROVEN or challenged(demanded))
    ]
    if kind is LeaseKind.NODE:
        return (*of_machine, *JoinStep)
    return (*of_machine, *(step for step in Step if step in CLAIM_STEPS))
