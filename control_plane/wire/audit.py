"""The audit log: its lines, and the heads of its chains. An export has the same lines, see docs/audit.md."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import one_of

AuditOutcomeWord = Annotated[
    str,
    one_of(
        "AuditOutcome",
        "What came of it.",
        allowed="It took effect.",
        refused="It had no effect, because of the rule that the line names.",
        failed="It was allowed and did not succeed.",
    ),
]
AuditSubjectKindWord = Annotated[
    str,
    one_of(
        "AuditSubjectKind",
        "Who acted.",
        user="A person of an organization.",
        service_account="A machine identity of an organization.",
        loop="A loop of the reconciler.",
        system="The process that served the requests.",
        administrator="Somebody who ran a command at the host.",
    ),
]
ACTOR_PATTERN = r"^((user|sa|key|ses)_[0-9a-f]{32}|[a-z]+(_[a-z]+)+)$(?!\n)"
ActorText = Annotated[
    str,
    Meta(
        pattern=ACTOR_PATTERN,
        description="Who acted: the id of a user, service account, API key or session, or the name of a loop.",
        examples=["user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of a user, service account, API key or session, or the name of a loop"},
    ),
]
TARGET_PATTERN = r"^[!-~]+$(?!\n)"
TargetText = Annotated[
    str,
    Meta(
        pattern=TARGET_PATTERN,
        description="The id of what an event was about.",
        examples=["le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "an id, without spaces"},
    ),
]
CHAIN_PATTERN = r"^(platform|org_[0-9a-f]{32})$(?!\n)"
ChainText = Annotated[
    str,
    Meta(
        pattern=CHAIN_PATTERN,
        description="A chain of the audit log: the id of an organization, or `platform`.",
        examples=["platform"],
        extra={"must": "the id of an organization (`org_...`), or `platform`"},
    ),
]
HashText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{64}$(?!\n)",
        description="A SHA-256 hash as 64 hexadecimal digits.",
        examples=["5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"],
        extra={"must": "64 lower-case hexadecimal digits"},
    ),
]


class AuditEventView(View, kw_only=True):
    """A line of the audit log: what was asked, allowed, refused or done."""

    id: str
    """The id of the line."""
    chain: str
    """Whose chain it is in: the id of an organization, or `platform`."""
    sequence: int
    """Its place in the chain, from 1 without gaps."""
    at: Timestamp
    """When it happened, by the database's clock."""
    event: str
    """What it was, as noun and action."""
    outcome: AuditOutcomeWord
    """What came of it."""
    code: str | None
    """The code of the refusal or the failure; null for what was allowed."""
    subject: str
    """The id of the user or the service account, or the name of the loop."""
    subject_kind: AuditSubjectKindWord
    """Who acted."""
    credential: str | None
    """The id of the API key or the session; null where there was none."""
    subject_organization: str | None
    """The organization of the subject, which differs from the chain's when an operator acted for it."""
    project: str | None
    """The id of the project; null where there is none."""
    targets: tuple[str, ...]
    """The ids of what it was about."""
    address: str | None
    """The client's address; of IPv6 its network of 64 bits."""
    client: str | None
    """The client's User-Agent, without anything that may be a secret."""
    region: str | None
    """Where the process ran that handled it."""
    rule: str | None
    """What decided: a role binding, a refusal's code, or an event of the journal."""
    request_id: str | None
    """The id of the request, as in the answer's `X-Request-Id`."""
    links: dict[str, list[str | int]]
    """Rows that prove it: numbers of the `journal`, `transactions` of the ledger, a provider order's `launch_key`."""
    details: dict[str, str | int]
    """Some more facts, with keys of a closed list."""
    previous: HashText
    """The hash of the line before it; 64 zeros for the first one."""
    hash: HashText
    """The hash of this line."""


class AuditEventPage(View):
    """Lines of the audit log."""

    items: tuple[AuditEventView, ...]
    """The lines, newest first."""
    next_cursor: NextCursor | None = None


class AuditChainView(View):
    """The head of a chain. Keep it elsewhere: an export that lacks this line was cut off."""

    chain: str
    """Whose chain it is."""
    sequence: int
    """The place of its last line; 0 while it has none."""
    hash: HashText
    """The hash of its last line; 64 zeros while it has none."""
