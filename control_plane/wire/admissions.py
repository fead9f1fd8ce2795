"""Decisions of admission, with every rule that spoke."""

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import (
    ActionWord,
    ActorKindWord,
    DecisionIdText,
    LevelWord,
    OutcomeWord,
    RuleWord,
    StageWord,
)


class RuleView(View):
    """What one rule said, and the figures that it spoke on."""

    stage: StageWord
    """The stage of admission that it belongs to."""
    rule: RuleWord
    """Which rule."""
    verdict: OutcomeWord
    """What it said."""
    level: LevelWord | None
    """The level of the envelope that it is from; null where there is none."""
    subject: str | None
    """What the limit is for where there are several, such as a GPU model; null where there is none."""
    limit: str | None
    """The limit: a number, an exact amount of US dollars, or what is allowed; null where there is none."""
    used: str | None
    """What was used before; null where there is none."""
    wanted: str | None
    """What was wanted in addition; null where there is none."""
    code: str | None
    """The code of the refusal; docs/errors.md lists them. Null unless it refused."""
    why: str | None
    """Why it refused, as a sentence that says what to change; null unless it did."""


class DecisionView(View, kw_only=True):
    """A decision of admission."""

    id: DecisionIdText
    """Its id."""
    decided_at: Timestamp
    """When it was made."""
    action: ActionWord
    """What was asked for."""
    outcome: OutcomeWord
    """What was decided."""
    code: str | None
    """The code of the first refusal; null when it was admitted."""
    why: str | None
    """The first refusal as a sentence; null when it was admitted."""
    rules: tuple[RuleView, ...]
    """Every rule that spoke, in the order of the stages."""
    lease_id: str | None
    """The lease; null for a refused creation and for quota requests."""
    project_id: str | None
    """The project; null where there is none."""
    environment_id: str | None
    """The environment; null where there is none."""
    quota_request_id: str | None
    """The quota request; null for other actions."""
    actor_kind: ActorKindWord
    """Who asked."""
    actor: str
    """The id of who asked, or the name of a loop."""
    request_id: str | None
    """The id of the HTTP request; null for loops."""


class DecisionPage(View):
    """A page of decisions."""

    items: tuple[DecisionView, ...]
    """The decisions, newest first."""
    next_cursor: NextCursor | None
