"""What operators ask for concerning a provider account, and what may come of it.

The API stores a request, because it touches no provider. The reconciler does what is asked for and stores the outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import AccountName, AccountRequestId, SecretId


class AccountVerb(StrEnum):
    ADD = "add"
    """Use an account with these credentials, once the provider has accepted them."""
    ROTATE = "rotate"
    """Use new credentials, once the provider has accepted them. Until then the old ones stay in force."""
    TEST = "test"
    """Ask the provider whether it accepts the credentials that are in force."""
    DRAIN = "drain"
    """Order nothing there any more. Machines that exist stay as they are."""
    RESUME = "resume"
    """Order there again."""
    ARM = "arm"
    """Let orphans there be terminated. A new account only reports them."""
    DISARM = "disarm"
    """Only report orphans there."""
    REMOVE = "remove"
    """Forget the account and destroy its credentials. Refused while something may exist there."""


class AccountOutcome(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    """The provider gave no answer, so that nothing was changed."""


class AccountCode(StrEnum):
    """Why a request was refused. Codes never change meaning; the OpenAPI document explains them."""

    PROVIDER_NOT_SUPPORTED = "provider_not_supported"
    SETTINGS_INVALID = "settings_invalid"
    ACCOUNT_EXISTS = "account_exists"
    ACCOUNT_UNKNOWN = "account_unknown"
    ACCOUNT_IN_USE = "account_in_use"
    ACCOUNT_FROM_ENVIRONMENT = "account_from_environment"
    CREDENTIALS_REFUSED = "credentials_refused"
    CREDENTIALS_OF_ANOTHER_ACCOUNT = "credentials_of_another_account"
    CREDENTIALS_UNREADABLE = "credentials_unreadable"
    NO_ANSWER = "no_answer"


DRAINED_FIRST = timedelta(minutes=1)
"""How long nothing was ordered at an account before it is removed: orders that were being placed are on record then."""
TRIES_MAX = 5
"""How often a provider that does not answer is asked before the request ends as unreachable."""
TRY_AGAIN_AFTER = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class AccountRequest:
    id: AccountRequestId
    account: AccountName
    verb: AccountVerb
    secret_id: SecretId | None
    why: str | None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a request."""

    outcome: AccountOutcome
    said: str
    """A sentence for the operator, without any part of the credentials."""
    code: AccountCode | None = None
    same_account: bool = False
    """Whether the credentials were seen to show a machine that our records have at the account."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What is known about an account when a request about it is decided."""

    known: bool
    """There is such an account, and it was not removed."""
    stored: bool
    """Its credentials are ours to change, because an operator gave them to us."""
    machines: int
    """Machines of ours that may exist there."""
    orphans: int
    children: int = 0
    """What launches made beside machines, as the last list of it shows."""
    children_unlisted: bool = False
    """Whether that list is older than the end of the last machine there."""
    drained_at: datetime | None = None
    refs: frozenset[str] = field(default_factory=frozenset[str])
    """The provider's ids of the machines that its last list showed."""


def _no(code: AccountCode, said: str) -> Finding:
    return Finding(AccountOutcome.REFUSED, said, code)


def refusal(request: AccountRequest, holdings: Holdings) -> Finding | None:
    """Why a request is refused before any provider is asked; None when it is not."""
    account = request.account
    if request.verb is AccountVerb.ADD:
        if holdings.known and holdings.stored:
            return _no(
                AccountCode.ACCOUNT_EXISTS,
                f"The account {account} exists. To change its credentials: splitplane account rotate {account}",
            )
        return None
    if not holdings.known:
        return _no(
            AccountCode.ACCOUNT_UNKNOWN,
            f"There is no provider account {account}; splitplane account list shows them.",
        )
    if request.verb in (AccountVerb.ROTATE, AccountVerb.REMOVE) and not holdings.stored:
        return _no(
            AccountCode.ACCOUNT_FROM_ENVIRONMENT,
            f"The account {account} is configured in the reconciler's environment: change it there, or make it an"
            f" account of the database with splitplane account add {account}",
        )
    if request.verb is AccountVerb.REMOVE and _is_in_use(holdings):
        return _no(AccountCode.ACCOUNT_IN_USE, _in_use(account, holdings))
    return None


def _is_in_use(holdings: Holdings) -> bool:
    return bool(holdings.machines or holdings.orphans or holdings.children or holdings.children_unlisted)


def _in_use(account: AccountName, holdings: Holdings) -> str:
    parts = []
    if holdings.machines:
        parts.append(f"{holdings.machines} machine{'s' * (holdings.machines != 1)} of ours")
    if holdings.orphans:
        parts.append(f"{holdings.orphans} orphan{'s' * (holdings.orphans != 1)}")
    if holdings.children:
        parts.append(f"{holdings.children} {'child' if holdings.children == 1 else 'children'} of launches")
    elif holdings.children_unlisted:
        parts.append("children of the last machine, which were not listed since,")
    return (
        f"{' and '.join(parts)} may exist at {account}, and without its credentials nobody could end them. Order"
        f" nothing more there with splitplane account drain {account}, and remove it when they are gone."
    )


def may_be_removed_from(holdings: Holdings, now: datetime) -> datetime:
    """From when on an account may be removed that is drained since then, or now."""
    return (holdings.drained_at or now) + DRAINED_FIRST


def of_another_account(
    request: AccountRequest, holdings: Holdings, listed: frozenset[str], others: Sequence[AccountName]
) -> Finding | None:
    """Why credentials with which a provider lists machines may not be put in force for an account.

    They belong to another account of the provider than those that they replace when they show none of its machines.
    `others` are the accounts of ours that have open records of what they show: one account of a provider under two
    names would have every machine twice, as a machine of one name and as an orphan of the other.
    """
    account = request.account
    if others:
        said = (
            f"These credentials show machines of {', '.join(others)}: they belong to the same account of the provider,"
            f" which must not be used under two names."
        )
        return _no(AccountCode.CREDENTIALS_OF_ANOTHER_ACCOUNT, said)
    if holdings.refs and not holdings.refs & listed:
        said = (
            f"These credentials show none of the {len(holdings.refs)} machines that {account} has: they belong to"
            " another account of the provider."
        )
        return _no(AccountCode.CREDENTIALS_OF_ANOTHER_ACCOUNT, said)
    return None
