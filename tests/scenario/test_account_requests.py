"""Operators add, test, rotate, drain and remove provider accounts, and no process is restarted for it."""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from datetime import timedelta
from itertools import count
from typing import Literal

import pytest
from sqlalchemy import text

from control_plane.db import account_requests, accounts, figures
from control_plane.db.account_requests import RecordedRequest
from control_plane.domain.account_request import TRIES_MAX, AccountRequest, AccountVerb
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.child import Needed
from control_plane.domain.freeze import THAW_AFTER, THAW_LISTS
from control_plane.domain.ids import AccountName, AccountRequestId, OrganizationId, SecretId, launch_key
from control_plane.vault.unsealing.local_file import LocalKeyManager
from control_plane.world import uuid7
from providers.base import LaunchOrder
from reconciler.live_accounts import CLOSED_AFTER_SECONDS, LiveAccounts
from reconciler.loops.providers import answer_account_requests
from reconciler.worlds.complete import CompleteWorld
from tests.support import keys, planting
from tests.support.accounts import Keyring
from tests.support.crash import Crash
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
SECOND = AccountName("fake/second")
KEY, NEW_KEY = "planted-key-1", "planted-key-2"
CALLS_MAX = 40
_PLANT = text("""
INSERT INTO orphans (account, provider_ref, launch_key, native_status, origin, first_seen_at, last_seen_at)
VALUES (:account, 'ref', 'sp-0', 'running', 'unrecorded', :now, :now)
""")


class Office:
    """A stage with a provider that checks keys, and an operator."""

    def __init__(self, stage: Stage, organization: OrganizationId) -> None:
        self.stage = stage
        self.organization = organization
        self.ring = Keyring(stage.clock)
        self.live = LiveAccounts(
            stage.db, stage.clock.now, keys.AFTER, self.ring.connect, stage.clouds, sleep=stage.clock.sleep
        )
        self.world = dataclasses.replace(
            stage.world,
            connect=self.ring.connect,
            accounts=self.live,
            account_names=self.live.keys(),
            refresh_accounts=self.live.refresh,
        )

    async def ask(
        self, verb: AccountVerb, account: AccountName = SECOND, *, given: Mapping[str, str] | None = None
    ) -> AccountRequestId:
        """Store a request, as the API does."""
        secret: SecretId | None = None
        if given is not None:
            plain = json.dumps(given).encode()
            secret = await keys.store(self.stage.db, self.stage.clock, keys.BEFORE, self.organization, plain)
        request = AccountRequest(AccountRequestId(uuid7()), account, verb, secret, "ticket 1")
        async with self.stage.db.transaction() as connection:
            await account_requests.insert(
                connection, request, actor=ADMINISTRATOR, now=self.stage.clock.now()
            )
        return request.id

    async def answer(self, world: CompleteWorld | None = None) -> None:
        (report,) = await self.stage.run("answer_account_requests", world=world or self.world)
        assert not report.errors

    async def outcome(self, request_id: AccountRequestId) -> RecordedRequest:
        async with self.stage.db.reading() as connection:
            found = await account_requests.get(connection, request_id)
        assert found is not None
        return found

    async def done(
        self, verb: AccountVerb, account: AccountName = SECOND, *, given: Mapping[str, str] | None = None
    ) -> RecordedRequest:
        """Ask, and let the reconciler answer and take over what changed."""
        asked = await self.ask(verb, account, given=given)
        await self.answer()
        await self.live.refresh()
        return await self.outcome(asked)

    async def secrets(self) -> int:
        async with self.stage.db.reading() as connection:
            return len(await rows(connection, text("SELECT id FROM secrets")))


@pytest.fixture
async def office(stage: Stage) -> Office:
    return Office(stage, await stage.organization())


def _told(found: RecordedRequest) -> tuple[str | None, str | None]:
    return found.outcome, found.code


async def test_an_account_is_added_rotated_and_removed_while_the_reconciler_runs(office: Office) -> None:
    first = office.ring.account(KEY)
    added = await office.done(AccountVerb.ADD, given={"api_key": KEY})
    assert (_told(added), added.said) == (
        ("accepted", None),
        "fake accepts the credentials and lists 0 machines of ours.",
    )
    assert SECOND in office.live
    assert await office.live[SECOND].offers()

    office.ring.accounts[NEW_KEY] = office.ring.accounts.pop(KEY)
    old = office.live[SECOND]
    assert _told(await office.done(AccountVerb.ROTATE, given={"api_key": NEW_KEY})) == ("accepted", None)
    assert office.live[SECOND] is not old
    assert await office.live[SECOND].inventory() == await first.inventory()
    assert await office.secrets() == 1, "the old credentials are deleted"

    removing = await office.ask(AccountVerb.REMOVE)
    await office.answer()
    assert (await office.outcome(removing)).outcome is None, (
        "orders that are being placed may still be stored"
    )
    office.stage.clock.advance(61)
    await office.answer()
    await office.live.refresh()
    assert _told(await office.outcome(removing)) == ("accepted", None)
    assert SECOND not in office.live
    assert list(office.live) == [FAKE]
    assert await office.secrets() == 0
    async with office.stage.db.reading() as connection:
        assert [account.name for account in await accounts.every(connection)] == [FAKE]
        shown = await figures.accounts(connection, now=office.stage.clock.now())
    assert [account.name for account in shown] == [FAKE], "its metrics would alert for ever"


async def test_leases_are_placed_at_an_account_that_was_added_and_its_machines_are_ours_to_end(
    office: Office,
) -> None:
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    await office.done(AccountVerb.DRAIN, FAKE)
    await office.stage.run("refresh_offers", world=office.world)
    lease = await office.stage.lease(await office.stage.organization())
    for name in ("place_leases", "launch_machines", "observe_machines"):
        await office.stage.run(name, world=office.world)
    (machine,) = await office.stage.machines(lease)
    assert machine.account == SECOND

    refused = await office.done(AccountVerb.REMOVE)
    assert _told(refused) == ("refused", "account_in_use")
    assert refused.said is not None
    assert refused.said.startswith("1 machine of ours may exist at fake/second")
    await office.done(AccountVerb.DRAIN)
    other = await office.stage.lease(await office.stage.organization())
    await office.stage.run("place_leases", world=office.world)
    assert await office.stage.machines(other) == []
    explained = await office.stage.why(other)
    assert {reject.code for reject in explained.placements[-1].ranking.rejected} >= {"account_unhealthy"}
    await office.done(AccountVerb.RESUME, FAKE)
    await office.stage.play(20)
    assert [machine.account for machine in await office.stage.machines(other)] == [FAKE]


@pytest.mark.parametrize("verb", [AccountVerb.ADD, AccountVerb.ROTATE])
async def test_credentials_that_the_provider_refuses_are_deleted_and_change_nothing(
    office: Office, verb: AccountVerb
) -> None:
    office.ring.account(KEY)
    if verb is AccountVerb.ROTATE:
        await office.done(AccountVerb.ADD, given={"api_key": KEY})
    kept, before = await office.secrets(), list(office.live)
    found = await office.done(verb, given={"api_key": "wrong"})
    assert _told(found) == ("refused", "credentials_refused")
    assert found.said == "fake does not accept these credentials: invalid API key (global/invalid-api-key)"
    assert await office.secrets() == kept
    assert list(office.live) == before
    if verb is AccountVerb.ROTATE:
        assert await office.live[SECOND].inventory() == ()


async def test_one_account_of_a_provider_is_not_added_under_a_second_name(office: Office) -> None:
    """Each name would list the machines of the other as orphans, and terminate them once it is armed."""
    office.ring.accounts[KEY] = office.stage.cloud
    lease = await office.stage.lease(await office.stage.organization())
    await office.stage.play_until(lease, "ready", seconds_max=60)
    found = await office.done(AccountVerb.ADD, given={"api_key": KEY})
    assert _told(found) == ("refused", "credentials_of_another_account")
    assert found.said == (
        "These credentials show machines of fake: they belong to the same account of the provider,"
        " which must not be used under two names."
    )
    assert await office.secrets() == 0


async def test_machines_that_another_account_has_on_record_are_never_terminated_as_orphans(
    office: Office,
) -> None:
    """An account that was added under a second name while it had no machines."""
    stage = office.stage
    office.ring.accounts[KEY] = stage.cloud
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    await office.done(AccountVerb.ARM)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    held = text("SELECT account, origin, held_code FROM orphans WHERE gone_at IS NULL")
    for _ in range(10):
        for name in ("observe_machines", "collect_orphans"):
            await stage.run(name, world=office.world)
        stage.clock.advance(30)
    async with stage.db.reading() as connection:
        shown = [tuple(row) for row in await rows(connection, held)]
    there = {machine.account for machine in await stage.machines(lease)}
    (other,) = {FAKE, SECOND} - there
    assert shown == [(other, "other_account", "other_account")]
    assert await stage.state(lease) == "ready"
    assert len(stage.cloud.alive()) == 1


async def test_an_account_of_the_environment_is_not_replaced_by_one_with_other_machines(
    office: Office,
) -> None:
    office.ring.account(KEY)
    lease = await office.stage.lease(await office.stage.organization())
    await office.stage.play_until(lease, "ready", seconds_max=60)
    await office.stage.play(10)
    found = await office.done(AccountVerb.ADD, FAKE, given={"api_key": KEY})
    assert _told(found) == ("refused", "credentials_of_another_account")
    assert await office.secrets() == 0


async def test_an_account_stays_armed_only_when_its_new_credentials_show_a_machine_that_it_has(
    office: Office,
) -> None:
    stage = office.stage

    async def armed() -> tuple[bool, str | None]:
        async with stage.db.reading() as connection:
            account = await accounts.get(connection, FAKE)
        return account.armed_at is not None, account.disarmed_why

    office.ring.accounts[KEY] = office.ring.accounts[NEW_KEY] = stage.cloud
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.play(10)
    await office.done(AccountVerb.ARM, FAKE)
    assert _told(await office.done(AccountVerb.ADD, FAKE, given={"api_key": KEY})) == ("accepted", None)
    assert await armed() == (True, None), "it shows the machine of the account"
    await stage.release(lease)
    await stage.play_until(lease, "ended", seconds_max=600)
    assert _told(await office.done(AccountVerb.ROTATE, FAKE, given={"api_key": NEW_KEY})) == (
        "accepted",
        None,
    )
    is_armed, why = await armed()
    assert (is_armed, str(why)[:32]) == (False, "Its credentials were changed, an")
    await office.done(AccountVerb.ARM, FAKE)
    assert await armed() == (True, None)


async def test_credentials_of_another_account_are_refused_while_machines_live(office: Office) -> None:
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    await office.done(AccountVerb.DRAIN, FAKE)
    await office.stage.run("refresh_offers", world=office.world)
    await office.stage.lease(await office.stage.organization())
    for name in ("place_leases", "launch_machines", "observe_machines"):
        await office.stage.run(name, world=office.world)
    office.stage.clock.advance(61)
    await office.stage.run("observe_machines", world=office.world)
    office.ring.account(NEW_KEY)
    found = await office.done(AccountVerb.ROTATE, given={"api_key": NEW_KEY})
    assert _told(found) == ("refused", "credentials_of_another_account")
    assert len(await office.live[SECOND].inventory()) == 1


async def test_a_provider_that_does_not_answer_is_asked_a_few_times_and_then_nothing_is_changed(
    office: Office,
) -> None:
    office.ring.away = True
    asked = await office.ask(AccountVerb.ADD, given={"api_key": KEY})
    for _ in range(TRIES_MAX):
        assert (await office.outcome(asked)).outcome is None
        await office.answer()
        office.stage.clock.advance(60)
    found = await office.outcome(asked)
    assert (_told(found), found.said) == (("unreachable", "no_answer"), "fake gives no answer: Unavailable.")
    assert await office.secrets() == 0


async def test_a_provider_that_answers_again_in_time_accepts_the_credentials(office: Office) -> None:
    office.ring.account(KEY)
    office.ring.away = True
    asked = await office.ask(AccountVerb.ADD, given={"api_key": KEY})
    await office.answer()
    office.ring.away = False
    office.stage.clock.advance(60)
    await office.answer()
    assert _told(await office.outcome(asked)) == ("accepted", None)


async def test_a_test_says_what_the_provider_says_and_changes_nothing(office: Office) -> None:
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    version = await _version(office)
    assert _told(await office.done(AccountVerb.TEST)) == ("accepted", None)
    office.ring.accounts.clear()
    assert _told(await office.done(AccountVerb.TEST)) == ("refused", "credentials_refused")
    assert await _version(office) == version
    assert _told(await office.done(AccountVerb.TEST, FAKE)) == ("accepted", None), "one of the environment"


async def _version(office: Office) -> int:
    async with office.stage.db.reading() as connection:
        return (await accounts.get(connection, SECOND)).credentials_version


async def test_what_cannot_be_done_is_refused_with_a_code(office: Office) -> None:
    office.ring.account(KEY)
    good = {"api_key": KEY}
    await office.done(AccountVerb.ADD, given=good)
    for verb, account, given, code in (
        (AccountVerb.ADD, SECOND, good, "account_exists"),
        (AccountVerb.ADD, AccountName("nowhere"), good, "provider_not_supported"),
        (AccountVerb.ADD, AccountName("fake/third"), {"planted-name": KEY}, "settings_invalid"),
        (AccountVerb.ROTATE, AccountName("fake/third"), good, "account_unknown"),
        (AccountVerb.TEST, AccountName("fake/third"), None, "account_unknown"),
        (AccountVerb.DRAIN, AccountName("fake/third"), None, "account_unknown"),
        (AccountVerb.ROTATE, FAKE, good, "account_from_environment"),
        (AccountVerb.REMOVE, FAKE, None, "account_from_environment"),
    ):
        found = await office.done(verb, account, given=given)
        assert _told(found) == ("refused", code), (verb, account)
        assert "planted" not in str(found.said)
    assert await office.secrets() == 1


async def test_an_account_of_the_environment_becomes_one_of_the_database_without_a_break(
    office: Office,
) -> None:
    office.ring.account(KEY)
    before = office.live[FAKE]
    assert _told(await office.done(AccountVerb.ADD, FAKE, given={"api_key": KEY})) == ("accepted", None)
    assert office.live[FAKE] is not before
    assert list(office.live) == [FAKE]
    assert _told(await office.done(AccountVerb.ADD, FAKE, given={"api_key": KEY})) == (
        "refused",
        "account_exists",
    )


def _restarted(office: Office, manager: LocalKeyManager | None = keys.AFTER) -> LiveAccounts:
    """The accounts of a process that starts now, with the same environment."""
    stage = office.stage
    return LiveAccounts(
        stage.db, stage.clock.now, manager, office.ring.connect, stage.clouds, sleep=stage.clock.sleep
    )


async def test_an_account_of_the_environment_that_was_taken_over_and_removed_does_not_come_back(
    office: Office,
) -> None:
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, FAKE, given={"api_key": KEY})
    office.stage.clock.advance(1)
    await office.done(AccountVerb.REMOVE, FAKE)
    office.stage.clock.advance(61)
    await office.answer()
    for live in (office.live, _restarted(office)):
        async with office.stage.db.transaction() as connection:  # As each process does when it starts.
            await accounts.register(connection, FAKE, "fake", now=office.stage.clock.now())
        await live.refresh()
        assert list(live) == []
    async with office.stage.db.reading() as connection:
        assert await accounts.every(connection) == []
    assert _told(await office.done(AccountVerb.ADD, FAKE, given={"api_key": KEY})) == ("accepted", None)
    assert list(office.live) == [FAKE], "an operator can add it again"


async def test_a_process_that_starts_while_stored_credentials_cannot_be_opened_uses_none_of_its_environment(
    office: Office,
) -> None:
    office.ring.account(KEY)
    before = office.live[FAKE]
    await office.ask(AccountVerb.ADD, FAKE, given={"api_key": KEY})
    await office.answer()
    for manager, names in ((None, []), (keys.AFTER, [FAKE])):
        live = _restarted(office, manager)
        await live.refresh()
        assert list(live) == names, manager
        assert live.get(FAKE) is not before


async def test_requests_about_one_account_are_done_in_their_order(office: Office) -> None:
    office.ring.account(KEY)
    asked = [
        await office.ask(AccountVerb.ADD, given={"api_key": KEY}),
        await office.ask(AccountVerb.DRAIN),
        await office.ask(AccountVerb.RESUME),
    ]
    for _ in asked:
        await office.answer()
    found = [await office.outcome(request) for request in asked]
    assert [_told(request) for request in found] == [("accepted", None)] * 3
    async with office.stage.db.reading() as connection:
        assert (await accounts.get(connection, SECOND)).drained_at is None


async def test_an_orphan_keeps_its_account(office: Office) -> None:
    first = office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    key = f"sp-{office.stage.world.installation}-{uuid7().hex}"
    first.plant(LaunchOrder(key, "h100-sxm-80gb.1", "us-east-1", "", ""))  # type: ignore[arg-type] # plain texts as ids
    await office.stage.run("observe_machines", world=office.world)
    found = await office.done(AccountVerb.REMOVE)
    assert _told(found) == ("refused", "account_in_use")
    assert "1 orphan may exist" in str(found.said)


async def test_children_keep_their_account_and_so_does_a_machine_that_ended_since_they_were_listed(
    office: Office,
) -> None:
    """A volume outlives its machine on purpose, and costs money that only these credentials can stop."""
    stage, first = office.stage, office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    key = launch_key(stage.world.installation, uuid7())
    volume = first.plant_child(key, "volume", Needed.WHILE_IT_EXISTS)
    await stage.run("sweep_children", world=office.world)
    found = await office.done(AccountVerb.REMOVE)
    assert _told(found) == ("refused", "account_in_use")
    assert "1 child of launches may exist" in str(found.said)
    del first.leftovers[volume.ref]
    for _ in range(THAW_LISTS):  # A list that misses all of them is believed once it stayed like that.
        stage.clock.advance((THAW_AFTER / THAW_LISTS).total_seconds() + 61)
        await stage.run("sweep_children", world=office.world)
    stage.clock.advance(1)
    async with stage.db.transaction() as connection:
        await planting.record(connection, key, SECOND, now=stage.clock.now())
    found = await office.done(AccountVerb.REMOVE)
    assert "children of the last machine, which were not listed since, may exist" in str(found.said)
    await office.done(AccountVerb.DRAIN)
    stage.clock.advance(61)
    await stage.run("sweep_children", world=office.world)
    assert _told(await office.done(AccountVerb.REMOVE)) == ("accepted", None)


async def test_a_machine_that_appears_while_its_account_is_removed_keeps_it(office: Office) -> None:
    """What was true when the request was taken is looked at again under the account's lock."""
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    asked = await office.ask(AccountVerb.REMOVE)
    token, now = uuid7(), office.stage.clock.now()
    async with office.stage.db.transaction() as connection:
        (request,) = await account_requests.take(
            connection, token=token, now=now, until=now + timedelta(minutes=1), limit=1
        )
        await connection.execute(_PLANT, {"account": SECOND, "now": now})
    assert await answer_account_requests.record(office.world, request, None, token)
    assert _told(await office.outcome(asked)) == ("refused", "account_in_use")
    assert await office.secrets() == 1


async def test_a_worker_that_lost_its_hold_changes_nothing(office: Office) -> None:
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    asked = await office.ask(AccountVerb.REMOVE)
    late = AccountRequest(asked, SECOND, AccountVerb.REMOVE, None, "ticket 1")
    assert not await answer_account_requests.record(office.world, late, None, uuid7())
    assert (await office.outcome(asked)).outcome is None
    assert await office.secrets() == 1


async def test_credentials_that_cannot_be_opened_leave_the_old_connection_and_show_on_the_account(
    office: Office,
) -> None:
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    await office.ask(AccountVerb.ROTATE, given={"api_key": KEY})
    await office.answer()
    async with office.stage.db.transaction() as connection:
        await connection.execute(text("UPDATE secrets SET ciphertext = ciphertext || '\\x00'"))
    old = office.live[SECOND]
    for _ in range(2):
        await office.live.refresh()
    assert office.live[SECOND] is old
    async with office.stage.db.reading() as connection:
        why = (await accounts.get(connection, SECOND)).failing_why
    assert why is not None
    assert why.startswith("Its credentials cannot be used: NotOpened")


async def test_a_connection_that_was_replaced_is_closed_later_for_the_calls_under_way(office: Office) -> None:
    slept, wake = [], asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await wake.wait()

    office.live = LiveAccounts(
        office.stage.db, office.stage.clock.now, keys.AFTER, office.ring.connect, {}, sleep=sleep
    )
    office.ring.account(KEY)
    await office.done(AccountVerb.ADD, given={"api_key": KEY})
    await office.done(AccountVerb.ROTATE, given={"api_key": KEY})
    await asyncio.sleep(0)
    assert (slept, office.ring.closed) == ([CLOSED_AFTER_SECONDS], 2), "those of the two tries"
    wake.set()
    await asyncio.wait_for(office.live.close(), timeout=5)
    assert office.ring.closed == 4, "the old one and the new one"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", [AccountVerb.ADD, AccountVerb.ROTATE, AccountVerb.REMOVE])
async def test_a_request_survives_a_death_at_any_call(
    office: Office, verb: AccountVerb, when: Literal["before", "after"]
) -> None:
    """Killed again and again, each time one call later, it is done once in the end, and no secret is left over."""
    office.ring.account(KEY)
    office.ring.accounts[NEW_KEY] = office.ring.accounts[KEY]
    if verb is not AccountVerb.ADD:
        await office.done(AccountVerb.ADD, given={"api_key": KEY})
    asked = await office.ask(verb, given=None if verb is AccountVerb.REMOVE else {"api_key": NEW_KEY})

    async def activation(world: CompleteWorld) -> None:
        await office.stage.run("answer_account_requests", world=world)

    for call in count(1):
        assert call < CALLS_MAX
        if (await office.outcome(asked)).outcome is not None:
            break
        await Crash(at=call, when=when).kills(activation, dataclasses.replace(office.world, replica="doomed"))
        office.stage.clock.advance(181)
    assert _told(await office.outcome(asked)) == ("accepted", None)
    await office.live.refresh()
    assert (SECOND in office.live) is (verb is not AccountVerb.REMOVE)
    assert await office.secrets() == (0 if verb is AccountVerb.REMOVE else 1)
