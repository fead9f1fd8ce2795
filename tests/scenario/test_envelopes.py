"""Leases that come to be outside of their envelopes while they run: who is warned, who ends when, and what they cost."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.decision import Action, Rule, Verdict
from control_plane.domain.envelope import Burst, Envelope
from control_plane.domain.envelope_watch import UNWATCHED_AFTER
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import NANO_PER_USD, Nano, accrued
from control_plane.domain.price import Price
from control_plane.domain.proof import Tier
from control_plane.domain.request import CapacityRequest
from control_plane.domain.tariff import billing_start
from control_plane.services import admissions, billing
from control_plane.services.admissions import Decided
from tests.support.stage import H100, H100X8, Stage

pytestmark = pytest.mark.database
GRACE = 600
LATE_MAX = 75
"""Warned leases are looked at every minute, and the loop runs every 15 s."""
MODEL = H100.sku.shape.gpu_model


class Play:
    """An organization with three leases: two small ones in the United States and Europe, and a large one as the last."""

    def __init__(self, stage: Stage, organization_id: OrganizationId) -> None:
        self.stage, self.organization_id = stage, organization_id
        self.leases: dict[str, Lease] = {}

    async def ready(self) -> "Play":
        await self.stage.round()  # So that offers are known.
        for name, sku, region in (
            ("us", "h100x1", "us-east-1"),
            ("eu", "h100x1", "eu-central-1"),
            ("last", "h100x8", "us-east-1"),
        ):
            request = CapacityRequest(sku, regions=(region,))
            self.leases[name] = await self.stage.lease(self.organization_id, request, name=name)
            self.stage.clock.advance(1)
        for lease in self.leases.values():
            await self.stage.play_until(lease, "ready")
        return self

    async def narrow(self, limits: Envelope) -> None:
        await self.stage.narrow(self.organization_id, limits)

    async def row(self, name: str) -> Lease:
        return await self.stage.lease_row(self.leases[name])

    async def live(self) -> set[str]:
        return {name for name in self.leases if (await self.row(name)).state == "ready"}

    async def warned(self) -> set[str]:
        return {
            name
            for name, lease in self.leases.items()
            if "lease envelope_warned" in await self.stage.story(lease)
        }

    async def decisions(self, name: str) -> Sequence[Decided]:
        """What was decided about the lease since it was placed, oldest first."""
        found = await admissions.page(
            self.stage.api, self.organization_id, lease_id=self.leases[name].id, limit=100
        )
        return [each for each in reversed(found) if each.action is Action.LEASE_RUN]

    async def expect_ends(self, names: set[str], rule: Rule) -> None:
        """The leases are warned at once, run for their grace, and end soon after it; the others run on."""
        others = self.leases.keys() - names
        await self.stage.play(30, step=15)
        warned_at = self.stage.clock.now()
        assert await self.warned() == names
        assert await self.live() == self.leases.keys(), "a warning ends nothing"
        await self.stage.play(GRACE - 60, step=60)
        assert await self.live() == self.leases.keys(), "the grace is the customer's"
        await self.stage.play(LATE_MAX + 60, step=15)
        assert await self.live() == others
        for name in names:
            row = await self.row(name)
            assert row.end_reason is EndReason.ENVELOPE_EXCEEDED
            assert row.billed_until is not None
            late = (row.billed_until - warned_at).total_seconds() - GRACE
            assert -30 <= late <= LATE_MAX, late
            await self._expect_decisions(name, rule, row)
            await self._expect_bill(row)
        for name in others:
            assert await self.decisions(name) == []

    async def _expect_decisions(self, name: str, rule: Rule, row: Lease) -> None:
        """One of the warning and one of the end, each with every rule; the sentence is that of the end and journal."""
        warning, end = await self.decisions(name)
        for decided in (warning, end):
            assert decided.outcome is Verdict.REFUSED
            assert rule in {spoken.rule for spoken in decided.rules if spoken.refused}
            assert decided.actor == "watch_envelopes"
        assert (end.decided_at, end.why) == (row.billed_until, row.end_why)
        explained = await self.stage.why(row)
        lines = {line.event: line for line in explained.journal if line.machine_id is None}
        assert warning.why is not None
        assert (lines["envelope_warned"].why or "").startswith(warning.why)
        assert "The lease ends at" in (lines["envelope_warned"].why or "")
        assert lines["envelope_exceeded"].why == end.why

    async def _expect_bill(self, row: Lease) -> None:
        """The customer pays from ready to the end, to the second, and nothing is held any longer."""
        await self.stage.play(60, step=20)
        assert row.ready_at is not None
        assert row.billed_until is not None
        seconds = int((row.billed_until - billing_start(row.ready_at)).total_seconds())
        assert _charged(
            await billing.bill(self.stage.api, self.organization_id, reach=EVERYWHERE), row
        ) == accrued(row.nano_per_unit_hour, row.units * seconds)


def _charged(bill: billing.Bill, lease: Lease) -> Nano:
    (line,) = [line for line in bill.lines if line.lease_id == lease.id]
    return Nano(line.amount_nano + line.unrated_nano)


@pytest.fixture
async def play(stage: Stage) -> AsyncIterator[Play]:
    made = await Play(stage, await stage.organization()).ready()
    yield made
    await stage.finish()


def ends(**limits: object) -> Envelope:
    return Envelope(ends_after_seconds=GRACE, **limits)  # type: ignore[arg-type]  # Each test names fields of its own.


def hourly(*prices: Price) -> Nano:
    return Nano(sum(price.nano_per_hour for price in prices))


async def test_fewer_gpus_end_the_leases_that_were_admitted_last(play: Play) -> None:
    await play.narrow(ends(gpus=9))
    await play.expect_ends({"last"}, Rule.GPUS)


async def test_fewer_gpus_of_a_model_and_less_spend_per_hour_end_as_many_as_it_takes(play: Play) -> None:
    await play.narrow(ends(gpus_of_model={MODEL: 1}))
    await play.expect_ends({"last", "eu"}, Rule.GPUS_OF_MODEL)
    await play.narrow(ends(spend_nano_per_hour=Nano(hourly(H100) - 1)))
    play.leases = {"us": play.leases["us"]}
    await play.expect_ends({"us"}, Rule.SPEND_PER_HOUR)


async def test_a_withdrawn_sku_ends_the_leases_with_it(play: Play) -> None:
    await play.narrow(ends(skus=frozenset({"h100x1"}), gpus=2))
    await play.expect_ends({"last"}, Rule.SKU)


async def test_a_withdrawn_region_ends_the_leases_that_are_there(play: Play) -> None:
    await play.narrow(ends(regions=frozenset({"us"})))
    await play.expect_ends({"eu"}, Rule.REGIONS)


async def test_a_withdrawn_provider_or_tier_ends_all(play: Play) -> None:
    await play.narrow(ends(providers=frozenset({"another"}), tiers=frozenset({Tier.ATTESTED})))
    await play.expect_ends({"us", "eu", "last"}, Rule.PROVIDERS)


async def test_the_end_of_a_burst_ends_what_was_admitted_over_the_limit(play: Play) -> None:
    burst = Burst(over_percent=400, seconds=900, price_percent=100)
    await play.narrow(ends(gpus=2, burst=burst))
    await play.stage.play(900 - 60, step=60)
    assert await play.warned() == set(), "the burst's time is the customer's"
    await play.stage.play(360, step=30)
    assert await play.warned() == {"last"}
    await play.stage.play(GRACE + LATE_MAX, step=30)
    assert await play.live() == {"us", "eu"}
    assert {spoken.rule for spoken in (await play.decisions("last"))[-1].rules if spoken.refused} == {
        Rule.GPUS
    }


async def test_a_used_up_month_warns_all_and_ends_the_last_ones_first_as_many_as_it_takes(play: Play) -> None:
    spent = await _spent(play)
    await play.narrow(ends(spend_nano_per_month=Nano(spent - hourly(H100X8) // 4)))
    await play.stage.play(30, step=15)
    assert await play.warned() == {"us", "eu", "last"}
    await play.stage.play(GRACE + LATE_MAX, step=30)
    assert await play.live() == {"us", "eu"}, "what is no longer held for the last one suffices"
    assert "lease envelope_cleared" in await play.stage.story(play.leases["us"])
    assert [each.outcome for each in await play.decisions("us")] == [Verdict.REFUSED, Verdict.ALLOWED]
    await play.narrow(ends(spend_nano_per_month=Nano(NANO_PER_USD // 100)))
    refused = await play.stage.try_lease(play.organization_id)
    assert "calendar month" in getattr(refused, "why", "")
    await play.stage.play(GRACE + LATE_MAX + 30, step=30)
    assert await play.live() == set()
    assert [each.outcome for each in await play.decisions("us")] == [
        Verdict.REFUSED,
        Verdict.ALLOWED,
        Verdict.REFUSED,
        Verdict.REFUSED,
    ]
    await play._expect_bill(await play.row("us"))


async def _spent(play: Play) -> Nano:
    """What is charged and held now."""
    row = await play.stage.organization_row(play.organization_id)
    bill = await billing.bill(play.stage.api, play.organization_id, reach=EVERYWHERE)
    return Nano(row.held_nano + sum(line.amount_nano for line in bill.lines))


async def test_who_releases_in_time_keeps_the_others(play: Play) -> None:
    await play.narrow(ends(gpus=9))
    await play.stage.play(30, step=15)
    await play.stage.release(play.leases["us"])
    await play.stage.play(GRACE + LATE_MAX, step=30)
    assert await play.live() == {"eu", "last"}
    assert [each.outcome for each in await play.decisions("last")] == [Verdict.REFUSED, Verdict.ALLOWED]


async def test_an_envelope_without_a_grace_warns_and_ends_nothing(play: Play) -> None:
    await play.narrow(Envelope(gpus=0))
    await play.stage.play(2 * GRACE, step=60)
    assert await play.warned() == await play.live() == {"us", "eu", "last"}
    assert len(await play.decisions("us")) == 1, "it is decided once, however often the loop looks"


async def test_after_an_outage_of_the_watch_the_grace_begins_anew(play: Play) -> None:
    await play.narrow(ends(gpus=9))
    await play.stage.play(30, step=15)
    away = UNWATCHED_AFTER + timedelta(minutes=1)
    await play.stage.play(away.total_seconds(), step=60, without=["watch_envelopes"])
    await play.stage.play(GRACE - 60, step=60)
    assert await play.live() == {"us", "eu", "last"}
    await play.stage.play(60 + LATE_MAX, step=15)
    assert await play.live() == {"us", "eu"}


async def test_a_suspended_organization_ends_by_what_is_held_and_not_by_its_envelope_first(
    play: Play,
) -> None:
    """Both speak: the envelope warns with its grace, and the hold ends the lease when it is used, whichever is first."""
    await play.narrow(Envelope(gpus=0, ends_after_seconds=7_200))
    await play.stage.suspend_organization(play.organization_id)
    refused = await play.stage.try_lease(play.organization_id)
    assert "suspended" in getattr(refused, "why", "")
    await play.stage.play(3_600, step=120)
    for name in play.leases:
        row = await play.row(name)
        assert row.end_reason is EndReason.UNFUNDED, name
        await play._expect_bill(row)
