"""The audit log: which events there are, and what a line of it says.

A request that changes something, or is refused, is the event that its endpoint's permission names. What the platform
does by itself is one of `Happening`. A line holds ids, codes and figures, and only such details as are listed here:
no name that a customer chose, no text of a request, no secret.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import OrganizationId, Prefix, off_wire, on_wire
from control_plane.domain.permission import Permission


class Happening(StrEnum):
    """What the platform, or an administrator at the host, does without a request."""

    MACHINES_ORDER = "machines.order"
    """A provider was asked for a machine. Whether it made one may not be known yet."""
    MACHINES_CREATE = "machines.create"
    """A provider made a machine: it answered so, or its list shows it."""
    MACHINES_REJECT = "machines.reject"
    """A provider refused to make a machine."""
    MACHINES_TERMINATE = "machines.terminate"
    """A machine is to end: from now on its provider is asked until the machine is gone."""
    MACHINES_END = "machines.end"
    """A provider confirmed that a machine is gone."""
    ORPHANS_END = "orphans.end"
    """A provider was asked to end a machine that no record of ours claims."""
    LEASES_END = "leases.end"
    """The platform ended a lease that nobody released: see the rule."""
    ORGANIZATIONS_SETTLE = "organizations.settle"
    """The books of a closing organization were closed."""
    BALANCES_NOTICE = "balances.notice"
    """The balance of an organization crossed a limit, or its charges a share of its budget: see the rule."""
    ACCOUNTS_FREEZE = "provider_accounts.freeze"
    """What ends machines of a provider account stands still, because its list cannot be believed."""
    ACCOUNTS_THAW = "provider_accounts.thaw"
    """It goes on."""
    DATA_KEYS_REWRAP = "data_keys.rewrap"
    """A data key was wrapped under another master key."""
    DATA_KEYS_REPLACE = "data_keys.replace"
    """The secrets under a data key were encrypted anew under another one."""
    DATA_KEYS_DESTROY = "data_keys.destroy"
    """The data keys of an organization were destroyed, and with them its secrets."""
    SIGN_INS_REFUSE = "sign_ins.refuse"
    """A person was not signed in, or refused to sign a terminal in. Who it was may not be known."""
    SESSIONS_BEGIN = "sessions.begin"
    """A person was signed in on a terminal, after a confirmation in a browser."""
    SESSIONS_END = "sessions.end"
    """A session ended by a sign-out, or because a refresh token was used that had been replaced: see the rule."""
    TOKENS_ISSUE = "tokens.issue"
    """An API key or a refresh token was presented for an access token. Only refusals have a line."""
    SSH_CERTIFICATES_SIGN = "ssh_certificates.sign"
    """The reconciler signed an SSH certificate that somebody requested, or refused to."""
    KUBECONFIGS_ISSUE = "kubeconfigs.issue"
    """The reconciler issued a kubeconfig that somebody requested, or refused to."""
    KUBECONFIGS_END = "kubeconfigs.end"
    """A kubeconfig opens nothing any more: its ServiceAccount is deleted. The rule says why."""
    SSH_AUTHORITIES_ROTATE = "ssh_authorities.rotate"
    """An administrator made the next key that signs SSH certificates; the rule says whether the current one leaked."""
    MASTER_KEYS_SET = "master_keys.set"
    """An administrator chose the master key of an organization."""
    PRICE_BOOKS_LOAD = "price_books.load"
    """An administrator put a price book in force."""
    SLA_TERMS_LOAD = "sla_terms.load"
    """An administrator put terms of service levels in force."""
    SIGNING_KEYS_MAKE = "signing_keys.make"
    """The API made the next key that signs access tokens."""
    SIGNING_KEYS_REMOVE = "signing_keys.remove"
    """An administrator removed a key that signs access tokens."""
    REFUSALS_SUMMARIZE = "refusals.summarize"
    """So many requests of an organization were refused that the rest of them are one line."""
    AUDIT_EXPORTS_SET = "audit_exports.set"
    """An administrator chose the bucket that the log is exported to, or that it is exported no more: see the rule."""
    AUDIT_PRUNE = "audit.prune"
    """Lines older than their retention were deleted."""
    RECORDS_PRUNE = "records.prune"
    """Records that had served their time were deleted: answers, sessions, tokens, orphans that are gone."""


EVENTS = frozenset({*map(str, Permission), *map(str, Happening)})
"""The closed list: the permissions that endpoints ask for, and what happens without a request."""


class AuditOutcome(StrEnum):
    ALLOWED = "allowed"
    """It took effect."""
    REFUSED = "refused"
    """It had no effect, because of the rule that the line names."""
    FAILED = "failed"
    """It was allowed and did not succeed; whether it had an effect is in the journal."""


class SubjectKind(StrEnum):
    """Who acted."""

    USER = "user"
    SERVICE_ACCOUNT = "service_account"
    LOOP = "loop"
    """A loop of the reconciler."""
    SYSTEM = "system"
    """The process that served the requests."""
    ADMINISTRATOR = "administrator"
    """Somebody who ran a command at the host."""


DETAILS = frozenset(
    {
        "account",
        "balance_nano",
        "codes",
        "count",
        "first_sequence",
        "key",
        "last_sequence",
        "limit_nano",
        "machine_region",
        "operation",
        "ports",
        "protocol",
        "serial",
        "sources",
        "state_after",
        "state_before",
    }
)
"""The only keys of a line's details."""
TARGETS_MAX = 8
CLIENT_LENGTH_MAX = 200
DETAIL_LENGTH_MAX = 200
PLATFORM_CHAIN = "platform"
"""The chain of lines that concern no organization."""
_ID = re.compile(r"[a-z]{2,8}_[0-9a-f]{32}")
_SECRET = re.compile(r"(?i)\b(sp[kdr]_|bearer[\s:]+|eyJ)[\w.~+/=-]+")

Detail = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """What is recorded of one event, before it has a place in a chain."""

    id: UUID
    organization_id: OrganizationId | None
    """Whose chain it belongs to; None: the platform's."""
    at: datetime
    event: str
    outcome: AuditOutcome
    subject: str
    """The subject's id on the wire, the loop's name, or `administrator`."""
    subject_kind: SubjectKind
    code: str | None = None
    """The code of the refusal or the failure."""
    credential: str | None = None
    """The id of the API key or the session."""
    subject_organization: str | None = None
    """The subject's organization. It differs from the chain's when an operator acted for an organization."""
    project: str | None = None
    targets: tuple[str, ...] = ()
    """The ids of what it is about."""
    address: str | None = None
    """The client's address; of IPv6 its network of 64 bits."""
    client: str | None = None
    """The client's User-Agent."""
    region: str | None = None
    """Where the process ran that handled it."""
    rule: str | None = None
    """What decided: a role binding, a refusal's code, or the event of the journal."""
    request_id: str | None = None
    links: Mapping[str, list[Detail]] = field(default_factory=dict[str, list[Detail]])
    """Rows that prove it: `journal` numbers, ledger `transactions`, the `launch_key` of a provider's call."""
    details: Mapping[str, Detail] = field(default_factory=dict[str, Detail])


def ids_among(words: Iterable[str]) -> tuple[str, ...]:
    """Those of the words that are ids on the wire, each once. Anything else may be text that somebody chose."""
    found = dict.fromkeys(word for word in words if _ID.fullmatch(word))
    return tuple(found)[:TARGETS_MAX]


def cleaned(text: str | None, longest: int = CLIENT_LENGTH_MAX) -> str | None:
    """A text of a client's, as it may be stored: printable ASCII of a bounded length, without what may be a secret."""
    if not text:
        return None
    bounded = text[: 8 * longest]
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in bounded)
    return without_secrets(printable)[:longest]


def without_secrets(text: str) -> str:
    """A text without what looks like an API key, a token, or the code of a terminal."""
    return _SECRET.sub("[removed]", text)


def allowed_details(details: Mapping[str, Detail]) -> dict[str, Detail]:
    """The details with the keys that are listed, with bounded values. Others are left out."""
    return {
        key: value if isinstance(value, int) else cleaned(value, DETAIL_LENGTH_MAX) or ""
        for key, value in sorted(details.items())
        if key in DETAILS
    }


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that something comes from that has no principal, such as a sign-in."""

    region: str | None
    """Where the process runs that has it."""
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a request, or an administrator's command, does: a line without its outcome."""

    organization_id: OrganizationId | None
    """The organization of whoever acts; None: an administrator at the host."""
    event: str
    subject: str
    subject_kind: SubjectKind
    credential: str | None = None
    project: str | None = None
    targets: tuple[str, ...] = ()
    address: str | None = None
    client: str | None = None
    region: str | None = None
    rule: str | None = None
    request_id: str | None = None
    operation: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict[str, Detail])
    """What it says besides its operation."""

    @property
    def others(self) -> tuple[OrganizationId, ...]:
        """The organizations that it acts on, besides the one that acts."""
        found = (
            OrganizationId(off_wire(Prefix.ORGANIZATION, target))
            for target in self.targets
            if _is_org(target)
        )
        return tuple(other for other in found if other != self.organization_id)

    def line(
        self,
        line_id: UUID,
        at: datetime,
        outcome: AuditOutcome = AuditOutcome.ALLOWED,
        *,
        code: str | None = None,
    ) -> AuditLine:
        """The line in the chain of the organization that acts, or in the platform's."""
        return AuditLine(
            id=line_id,
            organization_id=self.organization_id,
            at=at,
            event=self.event,
            outcome=outcome,
            code=code,
            subject=self.subject,
            subject_kind=self.subject_kind,
            credential=self.credential,
            subject_organization=_on_wire(self.organization_id),
            project=self.project,
            targets=self.targets,
            address=self.address,
            client=self.client,
            region=self.region,
            rule=self.rule if code is None else f"refusal:{code}",
            request_id=self.request_id,
            details=allowed_details(
                {**self.details, **({"operation": self.operation} if self.operation else {})}
            ),
        )

    def line_of(self, other: OrganizationId, line_id: UUID, at: datetime) -> AuditLine:
        """The line in the chain of an organization that it acts on: without our people's addresses and clients."""
        own = self.line(line_id, at)
        return replace(own, organization_id=other, address=None, client=None, project=None)


def _is_org(target: str) -> bool:
    return target.startswith(f"{Prefix.ORGANIZATION}_")


def _on_wire(organization_id: OrganizationId | None) -> str | None:
    return None if organization_id is None else on_wire(Prefix.ORGANIZATION, organization_id)


CODES_MAX = 12
"""Codes that a summary names; the rest are counted together."""


def summarized(
    organization_id: OrganizationId | None, refused: Mapping[str, int], line_id: UUID, at: datetime
) -> AuditLine:
    """The line of refusals that were only counted: how many, by their codes."""
    largest = sorted(refused.items(), key=lambda item: (-item[1], item[0]))[:CODES_MAX]
    return AuditLine(
        id=line_id,
        organization_id=organization_id,
        at=at,
        event=Happening.REFUSALS_SUMMARIZE,
        outcome=AuditOutcome.REFUSED,
        subject="api",
        subject_kind=SubjectKind.SYSTEM,
        rule="too_many_refusals",
        details={
            "codes": " ".join(f"{code}={count}" for code, count in largest)[:DETAIL_LENGTH_MAX],
            "count": sum(refused.values()),
        },
    )
