"""Does what operators ask for concerning provider accounts: adds, tests, rotates, drains, arms and removes them.

The API stores requests, with sealed credentials, because it touches no provider. Credentials are tried first, with a
listing of the account's machines, and put in force only when the provider accepts them: a mistake in a rotation leaves
the old ones in force. A provider that gives no answer is asked a few times. Credentials that are not put in force are
deleted. What came of a request is stored with it, in one transaction with its effect.
"""

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from control_plane.db import account_requests, secrets
from control_plane.domain.account_request import (
    TRIES_MAX,
    TRY_AGAIN_AFTER,
    AccountCode,
    AccountOutcome,
    AccountRequest,
    AccountVerb,
    Finding,
    Holdings,
    may_be_removed_from,
    of_another_account,
    refusal,
)
from control_plane.vault.errors import KeyManagerError, KeyManagerUnavailable
from providers.base import Provider, ProviderError, Rejected, Unauthorized
from providers.registry import AccountOffError
from reconciler.credentials import settings_of
from reconciler.loop import Loop, Report, each
from reconciler.worlds.requests import RequestWorld

NAME = "answer_account_requests"
REQUESTS_PER_ACTIVATION_MAX = 10
HOLD = timedelta(minutes=3)
"""Longer than one listing of a slow provider."""
SAID_MAX = 500
"""So much of what a provider says is stored."""
_TRIED = frozenset({AccountVerb.ADD, AccountVerb.ROTATE, AccountVerb.TEST})


class _NoAnswer(Exception):  # noqa: N818 - reads as a sentence
    """Nobody said whether the credentials are good. The message says who did not."""


async def activate(world: RequestWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        taken = await account_requests.take(
            connection, token=token, now=now, until=now + HOLD, limit=REQUESTS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(taken))
    await each(taken, lambda request: _answer(world, request, token, report), report)
    return report


async def _answer(world: RequestWorld, request: AccountRequest, token: UUID, report: Report) -> None:
    async with world.db.reading() as connection:
        holdings = await account_requests.holdings(connection, request.account)
    finding = refusal(request, holdings)
    if (
        finding is None
        and request.verb is AccountVerb.REMOVE
        and not await _may_remove(world, request, token)
    ):
        return
    if finding is None and request.verb in _TRIED:
        try:
            finding = await _tried(world, request, holdings)
        except _NoAnswer as error:
            if request.tries + 1 < TRIES_MAX:
                await _again(world, request, token)
                return
            finding = Finding(AccountOutcome.UNREACHABLE, f"{error}.", AccountCode.NO_ANSWER)
    recorded = await record(world, request, finding, token)
    report.acted_on += recorded


async def _tried(world: RequestWorld, request: AccountRequest, holdings: Holdings) -> Finding:
    """What the provider says about the credentials. Raises _NoAnswer."""
    try:
        provider, ours = await _provider(world, request, holdings)
    except AccountOffError as error:
        return Finding(AccountOutcome.REFUSED, f"{error}.", AccountCode.SETTINGS_INVALID)
    except ValueError as error:
        return Finding(AccountOutcome.REFUSED, _sentence(error), AccountCode.PROVIDER_NOT_SUPPORTED)
    except KeyManagerUnavailable as error:
        raise _NoAnswer("The key manager does not answer") from error
    except KeyManagerError as error:
        return Finding(AccountOutcome.REFUSED, _sentence(error), AccountCode.CREDENTIALS_UNREADABLE)
    try:
        return await _listed(world, provider, request, holdings)
    finally:
        if ours:
            await provider.close()


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


async def _listed(
    world: RequestWorld, provider: Provider, request: AccountRequest, holdings: Holdings
) -> Finding:
    name = request.account.partition("/")[0]
    try:
        machines = await provider.inventory()
    except Rejected as error:
        blocked = isinstance(error, Unauthorized)
        said = f"{name} {'does not accept these credentials' if blocked else 'refuses to list machines'}: {error}"
        if error.code and error.code not in said:
            said += f" ({error.code})"
        return Finding(AccountOutcome.REFUSED, said[:SAID_MAX], AccountCode.CREDENTIALS_REFUSED)
    except ProviderError as error:
        raise _NoAnswer(f"{name} gives no answer: {type(error).__name__}") from error
    listed = frozenset(machine.provider_ref for machine in machines)
    if request.secret_id is not None:
        async with world.db.reading() as connection:
            keys = [machine.launch_key for machine in machines]
            others = await account_requests.claimants(connection, request.account, keys)
        refused = of_another_account(request, holdings, listed, others)
        if refused is not None:
            return refused
    return Finding(
        AccountOutcome.ACCEPTED,
        f"{name} accepts the credentials and lists {len(machines)} machines of ours.",
        same_account=bool(holdings.refs & listed),
    )


async def _provider(
    world: RequestWorld, request: AccountRequest, holdings: Holdings
) -> tuple[Provider, bool]:
    """The provider to try, and whether it is connected for this try alone. Raises as `_tried` says, and _NoAnswer."""
    secret_id = request.secret_id
    if secret_id is None and holdings.stored:
        async with world.db.reading() as connection:
            secret_id = await account_requests.secret_in_force(connection, request.account)
    if secret_id is not None:
        return world.connect(request.account, await settings_of(world.db, world.keys, secret_id)), True
    known = world.accounts.get(request.account)
    if known is None:
        raise _NoAnswer("The reconciler that answered does not have this account in its environment")
    return known, False


async def _may_remove(world: RequestWorld, request: AccountRequest, token: UUID) -> bool:
    """Whether the account has been drained for long enough. If not it is drained, and the request waits."""
    now = world.now()
    async with world.db.transaction() as connection:
        holdings = await account_requests.holdings(connection, request.account, lock=True)
        due_at = may_be_removed_from(holdings, now)
        if due_at <= now:
            return True
        await account_requests.drain(connection, request.account, why="It is being removed.", now=now)
        await account_requests.postpone(connection, request, token=token, due_at=due_at)
    return False


async def _again(world: RequestWorld, request: AccountRequest, token: UUID) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        await account_requests.retry(
            connection, request, token=token, now=now, due_at=now + TRY_AGAIN_AFTER * (request.tries + 1)
        )


async def record(world: RequestWorld, request: AccountRequest, finding: Finding | None, token: UUID) -> bool:
    """Store what came of a request with its effect. What was true before the provider was asked is checked again."""
    now = world.now()
    async with world.db.transaction() as connection:
        holdings = await account_requests.holdings(connection, request.account, lock=True)
        found = refusal(request, holdings) or finding or _DONE[request.verb]
        if not await account_requests.finish(connection, request, found, token=token, now=now):
            return False
        accepted = found.outcome is AccountOutcome.ACCEPTED
        if request.secret_id is not None:
            if accepted:
                provider = request.account.partition("/")[0]
                await account_requests.put_in_force(
                    connection,
                    request.account,
                    provider,
                    request.secret_id,
                    same_account=found.same_account,
                    now=now,
                )
            else:
                await secrets.delete(connection, request.secret_id)
        elif accepted and request.verb is AccountVerb.DRAIN:
            await account_requests.drain(
                connection, request.account, why=request.why or "An operator drained it.", now=now
            )
        elif accepted and request.verb is AccountVerb.RESUME:
            await account_requests.resume(connection, request.account)
        elif accepted and request.verb is AccountVerb.ARM:
            await account_requests.arm(connection, request.account, now=now)
        elif accepted and request.verb is AccountVerb.DISARM:
            await account_requests.disarm(connection, request.account)
        elif accepted and request.verb is AccountVerb.REMOVE:
            await account_requests.remove(connection, request.account, now=now)
    return True


_DONE: Mapping[AccountVerb, Finding] = {
    AccountVerb.DRAIN: Finding(AccountOutcome.ACCEPTED, "Nothing is ordered there any more."),
    AccountVerb.RESUME: Finding(AccountOutcome.ACCEPTED, "It is used again."),
    AccountVerb.ARM: Finding(AccountOutcome.ACCEPTED, "Orphans there are terminated."),
    AccountVerb.DISARM: Finding(AccountOutcome.ACCEPTED, "Orphans there are only reported."),
    AccountVerb.REMOVE: Finding(AccountOutcome.ACCEPTED, "It is removed, and its credentials are deleted."),
}

LOOP = Loop(NAME, timedelta(seconds=2), activate, lasts=timedelta(minutes=2))
