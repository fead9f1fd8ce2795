"""Liabilities: what costs money at providers, serves nobody and has to go. Open until a provider shows the end."""

import hashlib
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from control_plane.domain.machine import MachineState


class LiabilityKind(StrEnum):
    MACHINE = "machine"
    ORPHAN = "orphan"
    CHILD = "child"


def liability_id(kind: LiabilityKind, *names: str) -> UUID:
    """The id of a liability: the same at every look, because it is made of what identifies it.

    A list of a provider is the only record of an orphan or a child, and neither has an id of ours. `names` are, for a
    machine its id, for an orphan its account and the provider's id, for a child its account, its kind and the
    provider's id.
    """
    digest = hashlib.sha256("\0".join((kind, *names)).encode()).digest()
    return UUID(bytes=digest[:16])


def why_open(state: MachineState, *, known: bool, terminate_asked_at: datetime | None, tries: int) -> str:
    """What keeps the liability of a machine open that no lease holds, as a sentence for operators.

    `known`: the provider's id of the machine is known. `tries` counts requests since its termination was decided.
    """
    if state is not MachineState.TERMINATING:
        return "No lease holds it any more; its termination is decided next."
    if not known:
        return "The answer to its launch was lost: it is looked for by its launch key."
    if terminate_asked_at is not None:
        return "The provider took the request to terminate it, and has not shown its end yet."
    if tries:
        return "The provider refused to terminate it: see the last report of terminate_machines in splitplane loops."
    return "Its termination is requested next."
