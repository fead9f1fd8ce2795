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
    """Taken only by machines with GPUs."""
    GPUS_PROVEN = "gpus_proven"
    """The last step of the machine itself. Taken only when the SKU demands proof."""
    MESH_JOINED = "mesh_joined"
    """The first step of the customer's claim: from here on the machine serves one organization."""
    CERTIFICATES_ACCEPTED = "certificates_accepted"
    """The last step, so that no customer can log in before the machine is known to be what was sold."""


CLAIM_STEPS = frozenset({Step.MESH_JOINED, Step.CERTIFICATES_ACCEPTED})
"""The steps of a claim. All others are steps of the machine, claimed or not."""


def last_of_machine(demanded: Tier, gpu_count: int) -> Step:
    """The last step of a machine itself, with which it is what was sold."""
    if gpu_count == 0:
        return Step.CONNECTED
    return Step.GPUS_PROVEN if challenged(demanded) else Step.GPUS_VERIFIED


def steps_for(demanded: Tier, gpu_count: int, kind: LeaseKind) -> tuple[Step | JoinStep, ...]:
    """The steps of a lease whose machine has so many GPUs and has to prove `demanded`, in their order.

    After the steps of the machine, one to log in to has those of its claim, and a node those of joining its cluster.
    """
    in_order = [step for step in Step if step not in CLAIM_STEPS]
    of_machine = in_order[: in_order.index(last_of_machine(demanded, gpu_count)) + 1]
    if kind is LeaseKind.NODE:
        return (*of_machine, *JoinStep)
    return (*of_machine, *(step for step in Step if step in CLAIM_STEPS))
