"""Liabilities on the wire: what costs money at providers, serves nobody and has to go."""

from typing import Annotated

from control_plane.wire.common import Money, NextCursor, Request, Sentence, Timestamp, View
from control_plane.wire.vocabulary import LiabilityIdText, MachineIdText, one_of


class EndRequest(Request):
    """Why a liability is ended."""

    why: Sentence
    """Why. Auditors read it."""


class EndDecisionView(View):
    """An operator's decision that a liability is ended."""

    why: str
    """Why it was decided."""
    actor: str
    """The user or the service account that decided."""
    at: Timestamp
    """When it was decided."""


class LiabilityView(View):
    """What costs money at a provider, serves nobody and has to go."""

    kind: Annotated[
        str,
        one_of(
            "LiabilityKind",
            "What it is.",
            machine="A machine on record that no lease holds any more.",
            orphan="A machine that no record claims.",
            child="What a launch made beside its machine, such as a volume, and nobody needs any more.",
        ),
    ]
    """What it is."""
    account: str
    """The provider account."""
    provider_ref: str | None
    """The provider's id of it; null while it is not known."""
    machine_id: MachineIdText | None
    """The machine on record, for a child the one that it was made for; null for an orphan, and where no record is."""
    since: Timestamp
    """Since when it serves nobody: when its lease let it go, or when it was first seen as an orphan or not needed."""
    cost_per_hour: Money | None
    """What the provider charges for it; null where no record tells the price."""
    cost: Money | None
    """What it has cost since then; null where no record tells the price."""
    terminate_asked_at: Timestamp | None
    """When the provider first took a request to terminate it; null before that."""
    next_try_at: Timestamp | None
    """When it is asked for again; null when nothing is planned."""
    tries: int
    """How often it was tried since the last change; for a child, how often its deletion failed."""
    why: str
    """What keeps it open, as a sentence."""
    child_kind: str | None = None
    """What a child is, in the provider's word, such as `volume`; null for a machine."""
    id: LiabilityIdText | None = None
    """Its id, for as long as it is a liability."""
    decision: EndDecisionView | None = None
    """The last decision of an operator to end it; null when there is none, and for machines on record."""


class LiabilityList(View):
    """What costs money for nobody."""

    items: tuple[LiabilityView, ...]
    """Machines on record, newest first, then orphans, then children."""
    count: int
    """How many there are on all pages."""
    unpriced: int
    """How many of them no record tells the price of: they are missing in the two sums."""
    cost_per_hour: Money
    """What the others are charged for, on all pages."""
    cost: Money
    """What the others have cost, on all pages."""
    next_cursor: NextCursor | None = None
