"""Leases that are outside of an envelope while they live: who is, who is warned, and who ends when."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.decision import Rule, Verdict
from control_plane.domain.envelope import Burst, Envelope, Level
from control_plane.domain.envelope_rules import Applied, Use
from control_plane.domain.envelope_watch import (
    UNWATCHED_AFTER,
    Clear,
    End,
    Step,
    StillOutside,
    Warn,
    Warned,
    Watched,
    judged,
    over_since,
    watch,
)
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import EnvironmentId, LeaseId, ProjectId
from control_plane.domain.money import Nano
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
H100, L4 = GpuModel.H100_SXM_80GB, GpuModel.L4_24GB


def lease(number: int, model: GpuModel = H100, gpus: int = 2) -> Watched:
    """The leases are created in the order of their numbers."""
    return Watched(
        LeaseId(UUID(int=number)),
        ProjectId(UUID(int=1)),
        EnvironmentId(UUID(int=2)),
        "sku",
        Tier.PROVEN,
        PurchaseKind.ON_DEMAND,
        model,
        gpus,
        Nano(gpus),
        "eu-central-1",
        "acme",
        NOW - timedelta(hours=10 - number),
    )


FIRST, SECOND, THIRD = lease(1), lease(2), lease(3, L4)
LEASES = (FIRST, SECOND, THIRD)
USE = Use({H100: 4, L4: 2}, Nano(6), Nano(100))


def applied(envelope: Envelope, use: Use = USE) -> Applied:
    return Applied(Level.PROJECT, envelope, use)


def outside(envelope: Envelope, use: Use = USE, leases: Sequence[Watched] = LEASES) -> set[LeaseId]:
    decisions = judged(applied(envelope, use), leases, NOW)
    assert decisions.keys() == {lease.id for lease in leases}
    return {lease_id for lease_id, decision in decisions.items() if not decision.admitted}


def test_within_all_limits_nobody_is_outside() -> None:
    envelope = Envelope(
        gpus=6,
        gpus_of_model={H100: 4, L4: 2},
        spend_nano_per_hour=Nano(6),
        spend_nano_per_month=Nano(100),
        skus=frozenset({"sku"}),
        regions=frozenset({"eu"}),
        providers=frozenset({"acme"}),
        tiers=frozenset({Tier.PROVEN}),
    )
    assert outside(envelope) == set()


def test_the_leases_that_were_admitted_last_are_outside_as_many_as_it_takes() -> None:
    assert outside(Envelope(gpus=5)) == {THIRD.id}
    assert outside(Envelope(gpus=3)) == {THIRD.id, SECOND.id}
    assert outside(Envelope(gpus=0)) == {FIRST.id, SECOND.id, THIRD.id}
    assert outside(Envelope(spend_nano_per_hour=Nano(5))) == {THIRD.id}


def test_a_limit_of_a_model_concerns_the_leases_with_that_model_alone() -> None:
    assert outside(Envelope(gpus_of_model={H100: 2})) == {SECOND.id}
    assert outside(Envelope(gpus_of_model={L4: 1})) == {THIRD.id}


def test_when_the_month_is_used_up_all_are_outside() -> None:
    assert outside(Envelope(spend_nano_per_month=Nano(99))) == {FIRST.id, SECOND.id, THIRD.id}


def test_what_is_no_longer_allowed_is_outside_and_frees_what_it_used() -> None:
    other = replace(SECOND, sku="other")
    envelope = Envelope(skus=frozenset({"sku"}), gpus=4)
    assert outside(envelope, leases=(FIRST, other, THIRD)) == {other.id}
    for narrowed in (
        Envelope(skus=frozenset({"x"})),
        Envelope(regions=frozenset({"us"})),
        Envelope(providers=frozenset({"x"})),
        Envelope(tiers=frozenset({Tier.ATTESTED})),
    ):
        assert outside(narrowed) == {FIRST.id, SECOND.id, THIRD.id}, narrowed


def test_a_lease_without_a_machine_is_nowhere_yet() -> None:
    waiting = replace(FIRST, region=None, provider=None)
    envelope = Envelope(regions=frozenset({"us"}), providers=frozenset({"x"}))
    assert outside(envelope, leases=(waiting,)) == set()


def test_a_burst_shelters_until_its_time_is_over() -> None:
    envelope = Envelope(gpus=4, burst=Burst(50, 3_600))
    early = replace(USE, over_since=NOW - timedelta(minutes=59))
    late = replace(USE, over_since=NOW - timedelta(minutes=60))
    assert outside(envelope, early) == set()
    assert outside(envelope, late) == {THIRD.id}


def test_it_is_over_a_limit_since_it_was_first_seen_to_be() -> None:
    since = NOW - timedelta(hours=1)
    assert over_since(applied(Envelope(gpus=6)), NOW) is None
    assert over_since(applied(Envelope(gpus=6), replace(USE, over_since=since)), NOW) is None
    assert over_since(applied(Envelope(gpus=5)), NOW) == NOW
    assert over_since(applied(Envelope(gpus=5), replace(USE, over_since=since)), NOW) == since


WARNS_ONLY, ENDS = Envelope(gpus=5), Envelope(gpus=5, ends_after_seconds=3_600)


def warned(minutes: int, confirmed: timedelta = timedelta(minutes=1)) -> dict[LeaseId, Warned]:
    return {THIRD.id: Warned(NOW - timedelta(minutes=minutes), NOW - confirmed)}


def kinds(envelope: Envelope, warnings: Mapping[LeaseId, Warned]) -> list[tuple[type[Step], LeaseId]]:
    return [(type(step), step.lease_id) for step in watch(applied(envelope), LEASES, warnings, NOW)]


def test_a_lease_that_is_outside_is_warned_once() -> None:
    (first,) = watch(applied(WARNS_ONLY), LEASES, {}, NOW)
    assert isinstance(first, Warn)
    assert (first.lease_id, first.ends_at) == (THIRD.id, None)
    assert "6 GPUs are held" in first.why
    assert kinds(WARNS_ONLY, warned(1)) == [(StillOutside, THIRD.id)]


def test_an_envelope_that_only_warns_never_ends_a_lease() -> None:
    assert kinds(WARNS_ONLY, warned(100_000)) == [(StillOutside, THIRD.id)]


def test_an_envelope_that_ends_leases_gives_them_its_grace() -> None:
    (first,) = watch(applied(ENDS), LEASES, {}, NOW)
    assert isinstance(first, Warn)
    assert first.ends_at == NOW + timedelta(hours=1)
    assert kinds(ENDS, warned(59)) == [(StillOutside, THIRD.id)]
    assert kinds(ENDS, warned(60)) == [(End, THIRD.id)]


def test_after_an_outage_of_the_watch_the_grace_begins_anew() -> None:
    for gap in (UNWATCHED_AFTER + timedelta(seconds=1), timedelta(days=3)):
        (step,) = watch(applied(ENDS), LEASES, warned(100_000, confirmed=gap), NOW)
        assert isinstance(step, Warn), gap
        assert step.ends_at == NOW + timedelta(hours=1)


def test_who_is_within_again_is_told_so() -> None:
    (step,) = watch(applied(Envelope(gpus=6)), LEASES, warned(5), NOW)
    assert isinstance(step, Clear)
    assert step.decision is not None
    assert step.decision.admitted
    (gone,) = watch(applied(Envelope(gpus=6)), LEASES[:2], warned(5), NOW)
    assert gone == Clear(THIRD.id, None)


def test_a_lease_that_may_stay_because_others_have_to_go_is_judged_without_them() -> None:
    kept = replace(FIRST, created_at=NOW - timedelta(hours=1))
    excluded = replace(SECOND, sku="other")
    envelope = Envelope(skus=frozenset({"sku"}), gpus=4)
    decisions = judged(applied(envelope), (kept, excluded, THIRD), NOW)
    assert decisions[kept.id].admitted
    assert [spoken.rule for spoken in decisions[excluded.id].refusals] == [Rule.SKU, Rule.GPUS]


def test_every_rule_of_the_envelope_speaks_on_a_lease_with_its_figures() -> None:
    envelope = Envelope(gpus=3, spend_nano_per_month=Nano(500), regions=frozenset({"us"}))
    decision = judged(applied(envelope), LEASES, NOW)[THIRD.id]
    assert [(spoken.rule, spoken.verdict, spoken.used) for spoken in decision.rules] == [
        (Rule.REGIONS, Verdict.REFUSED, None),
        (Rule.GPUS, Verdict.REFUSED, "6"),
        (Rule.SPEND_PER_MONTH, Verdict.ALLOWED, "0.000000100"),
    ]
    assert (
        decision.rules[0].why
        == "The project's envelope allows these regions: us; the lease has eu-central-1."
    )


def test_the_leases_that_were_admitted_last_are_the_first_to_be_ended() -> None:
    found = {lease.id: Warned(NOW - timedelta(hours=2), NOW) for lease in LEASES}
    envelope = Envelope(spend_nano_per_month=Nano(99), ends_after_seconds=3_600)
    assert kinds(envelope, found) == [(End, THIRD.id), (End, SECOND.id), (End, FIRST.id)]


def test_a_lease_with_a_term_is_only_warned_and_is_outside_after_all_others() -> None:
    term = replace(THIRD, purchase=PurchaseKind.COMMITTED)
    leases = (FIRST, SECOND, term)
    assert outside(Envelope(gpus=5), leases=leases) == {SECOND.id}
    assert outside(Envelope(gpus=1), leases=leases) == {FIRST.id, SECOND.id, term.id}
    envelope = applied(Envelope(gpus=0, ends_after_seconds=60))
    warnings = watch(envelope, leases, {}, NOW)
    ends = {step.lease_id: step.ends_at for step in warnings if isinstance(step, Warn)}
    assert ends == {
        FIRST.id: NOW + timedelta(minutes=1),
        SECOND.id: NOW + timedelta(minutes=1),
        term.id: None,
    }
    warned = {lease.id: Warned(NOW, NOW + timedelta(minutes=1)) for lease in leases}
    steps = watch(envelope, leases, warned, NOW + timedelta(minutes=2))
    assert {step.lease_id for step in steps if isinstance(step, End)} == {FIRST.id, SECOND.id}
    assert {step.lease_id for step in steps if isinstance(step, StillOutside)} == {term.id}
