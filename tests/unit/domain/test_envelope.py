"""Envelopes: what is wider than a parent, and the laws of evaluation over all pairs of levels and limits."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.admission import Admitted, Proposal, Standing, admit
from control_plane.domain.decision import Action, NotAdmitted, Verdict
from control_plane.domain.envelope import UNLIMITED, Burst, Envelope, Level, widenings
from control_plane.domain.envelope_rules import Applied, Use, burst_left, exceeds
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano
from control_plane.domain.organization import OrganizationState
from control_plane.domain.price import Price
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
H100, L4 = GpuModel.H100_SXM_80GB, GpuModel.L4_24GB
USD = 1_000_000_000
PRICE = Price(Sku("h100x2", Shape(H100, 2, 16, 128, 100), CapacityShape.VM, Tier.PROVEN), Nano(USD), book=1)

LIMITS: dict[str, tuple[object, object]] = {
    "gpus": (8, 9),
    "gpus_of_model": ({H100: 4}, {H100: 5}),
    "spend_nano_per_hour": (Nano(4), Nano(5)),
    "spend_nano_per_month": (Nano(4), Nano(5)),
    "skus": (frozenset({"a"}), frozenset({"a", "b"})),
    "regions": (frozenset({"eu-central-1"}), frozenset({"eu"})),
    "providers": (frozenset({"p"}), frozenset({"p", "q"})),
    "tiers": (frozenset({Tier.ATTESTED}), frozenset({Tier.ATTESTED, Tier.PROVEN})),
    "purchases": (frozenset({PurchaseKind.ON_DEMAND}), frozenset(PurchaseKind)),
    "priority": (40, 60),
    "batch_size": (2, 3),
}
"""Of every limit a narrow value and a wider one."""


def stating(**limits: object) -> Envelope:
    return replace(UNLIMITED, **limits)  # type: ignore[arg-type] # a field by name  # By name, from the table.


def test_every_limit_of_an_envelope_is_held_against_its_parents() -> None:
    assert {each.name for each in fields(Envelope)} == LIMITS.keys() | {"burst", "ends_after_seconds"}
    for name, (narrow, wide) in LIMITS.items():
        for level in (Level.CEILING, Level.ORGANIZATION, Level.PROJECT):
            found = widenings(stating(**{name: wide}), [(level, stating(**{name: narrow}))])
            assert [each.level for each in found] == [level], name
            assert widenings(stating(**{name: narrow}), [(level, stating(**{name: wide}))]) == (), name
            assert widenings(stating(**{name: wide}), [(level, stating(**{name: wide}))]) == (), name


def test_what_a_child_leaves_open_or_a_parent_does_not_limit_is_not_wider() -> None:
    for name, (narrow, wide) in LIMITS.items():
        assert widenings(UNLIMITED, [(Level.CEILING, stating(**{name: narrow}))]) == (), name
        assert widenings(stating(**{name: wide}), [(Level.CEILING, UNLIMITED)]) == (), name


def test_a_model_that_only_the_child_limits_is_not_wider() -> None:
    parent = Envelope(gpus_of_model={H100: 4})
    assert widenings(Envelope(gpus_of_model={L4: 100}), [(Level.CEILING, parent)]) == ()


def test_a_child_is_held_against_every_level_above_it() -> None:
    parents = [(Level.CEILING, Envelope(gpus=8)), (Level.ORGANIZATION, Envelope(gpus=4))]
    assert {each.level for each in widenings(Envelope(gpus=9), parents)} == {
        Level.CEILING,
        Level.ORGANIZATION,
    }
    assert {each.level for each in widenings(Envelope(gpus=6), parents)} == {Level.ORGANIZATION}


def test_a_burst_must_be_within_the_parents_burst_and_never_cheaper() -> None:
    parent = Envelope(gpus=8, burst=Burst(50, 3_600, 150))
    assert widenings(Envelope(gpus=4, burst=Burst(50, 3_600, 150)), [(Level.CEILING, parent)]) == ()
    for burst, field in (
        (Burst(51, 3_600, 150), "burst.over_percent"),
        (Burst(50, 3_601, 150), "burst.seconds"),
        (Burst(50, 3_600, 149), "burst.price_percent"),
    ):
        found = widenings(Envelope(gpus=4, burst=burst), [(Level.CEILING, parent)])
        assert [each.field for each in found] == [field]
    firm = [(Level.CEILING, Envelope(gpus=8))]
    assert [each.field for each in widenings(Envelope(burst=Burst(1, 1)), firm)] == ["burst"]


# What one envelope says, over every combination of a stated limit and a use, alone and in pairs.

ENVELOPES = (
    UNLIMITED,
    Envelope(gpus=2),
    Envelope(gpus=4, burst=Burst(50, 3_600, 150)),
    Envelope(gpus_of_model={H100: 2}),
    Envelope(gpus_of_model={L4: 0}),
    Envelope(spend_nano_per_hour=Nano(2 * USD)),
    Envelope(spend_nano_per_hour=Nano(3 * USD), burst=Burst(100, 60, 200)),
    Envelope(spend_nano_per_month=Nano(2 * USD)),
    Envelope(skus=frozenset({"h100x2"})),
    Envelope(skus=frozenset({"l4"})),
    Envelope(regions=frozenset({"eu"})),
    Envelope(regions=frozenset({"us"})),
    Envelope(providers=frozenset()),
    Envelope(tiers=frozenset({Tier.PROVEN})),
    Envelope(tiers=frozenset({Tier.LISTED})),
    Envelope(purchases=frozenset({PurchaseKind.ON_DEMAND})),
)
USES = (
    Use(),
    Use({H100: 2}, Nano(2 * USD), Nano(USD)),
    Use({H100: 4}, Nano(4 * USD), Nano(9 * USD), over_since=NOW - timedelta(minutes=5)),
    Use({H100: 5, L4: 2}, Nano(5 * USD), Nano(9 * USD), over_since=NOW - timedelta(hours=2)),
)
APPLIED = tuple(Applied(level, envelope, use) for level, envelope, use in product(Level, ENVELOPES, USES))


def verdict(*applied: Applied, price: Price = PRICE) -> Admitted | NotAdmitted:
    return admit(
        Proposal(
            Action.LEASE_CREATE,
            CapacityRequest(price.sku.name, regions=("eu-central-1",)),
            price,
            Standing(OrganizationState.ACTIVE, Nano(1_000 * USD)),
            applied,
            NOW,
        )
    )


def test_adding_a_level_never_admits_more_and_never_makes_cheaper() -> None:
    alone = {index: verdict(each) for index, each in enumerate(APPLIED)}
    for (one, first), (other, second) in product(enumerate(APPLIED), repeat=2):
        if first.level >= second.level:
            continue
        both = verdict(first, second)
        if isinstance(both, Admitted):
            for single in (alone[one], alone[other]):
                assert isinstance(single, Admitted), (first, second)
                assert both.price.nano_per_unit_hour >= single.price.nano_per_unit_hour, (first, second)


def test_adding_a_limit_to_an_envelope_never_admits_more() -> None:
    for envelope, use in product(ENVELOPES, USES):
        before = verdict(Applied(Level.PROJECT, envelope, use))
        for name, (narrow, _) in LIMITS.items():
            if getattr(envelope, name) not in (None, {}):
                continue
            after = verdict(Applied(Level.PROJECT, replace(envelope, **{name: narrow}), use))  # type: ignore[arg-type] # a field by name
            if isinstance(after, Admitted):
                assert isinstance(before, Admitted), (envelope, use, name)


def test_the_order_of_the_levels_changes_nothing() -> None:
    chains = [
        tuple(each for each in APPLIED if each.use is use)[index::15] for use in USES for index in range(15)
    ]
    for chain in chains:
        assert len({each.level for each in chain}) == len(Level)
        verdicts = [verdict(*order) for order in permutations(chain)]
        assert all(each == verdicts[0] for each in verdicts), chain


def test_equal_facts_give_equal_answers() -> None:
    for applied in APPLIED:
        assert verdict(applied) == verdict(applied)


def test_more_use_is_never_admitted_where_less_is_refused() -> None:
    for level, envelope in product(Level, ENVELOPES):
        admitted = [isinstance(verdict(Applied(level, envelope, use)), Admitted) for use in USES]
        assert admitted == sorted(admitted, reverse=True), envelope


counts = st.integers(0, 20)


@given(limit=counts, narrower=counts, held=counts, over=st.integers(0, 100))
def test_a_narrower_limit_never_admits_what_a_wider_one_refuses(
    limit: int, narrower: int, held: int, over: int
) -> None:
    low, high = sorted((limit, narrower))
    use = Use({H100: held}, Nano(held * USD))
    tight = verdict(Applied(Level.PROJECT, Envelope(gpus=low, burst=Burst(over, 60)), use))
    loose = verdict(Applied(Level.PROJECT, Envelope(gpus=high, burst=Burst(over, 60)), use))
    assert isinstance(loose, Admitted) or isinstance(tight, NotAdmitted)
    if isinstance(tight, Admitted):
        assert held + 2 <= low * (100 + over) // 100


def test_a_burst_ends_with_its_time_and_begins_anew_once_nothing_is_over() -> None:
    envelope = Envelope(gpus=4, burst=Burst(100, 3_600))
    over = Use({H100: 5}, Nano(0), Nano(0), over_since=NOW - timedelta(hours=1))
    assert burst_left(Applied(Level.PROJECT, envelope, over), NOW) is None
    assert burst_left(Applied(Level.PROJECT, envelope, over), NOW - timedelta(seconds=1)) is envelope.burst
    within = replace(over, gpus_of_model={H100: 4})
    assert not exceeds(Applied(Level.PROJECT, envelope, within))
    assert burst_left(Applied(Level.PROJECT, envelope, within), NOW) is envelope.burst


def test_a_request_for_anywhere_meets_a_region_and_a_wider_or_narrower_one_does_too() -> None:
    eu = Envelope(regions=frozenset({"eu-central-1"}))
    assert eu.meets_regions(())
    assert eu.meets_regions(("eu",))
    assert eu.meets_regions(("us", "eu-central-1"))
    assert not eu.meets_regions(("eu-west-1",))
    assert not Envelope(regions=frozenset()).meets_regions(())
    assert eu.allows_region("eu-central-1")
    assert not eu.allows_region("eu")


def test_a_month_has_no_burst() -> None:
    envelope = Envelope(spend_nano_per_month=Nano(3 * USD), burst=Burst(100, 3_600))
    found = verdict(Applied(Level.PROJECT, envelope, Use({}, Nano(0), Nano(2 * USD))))
    assert isinstance(found, NotAdmitted)
    assert found.decision.outcome is Verdict.REFUSED


def test_limits_on_gpus_say_nothing_about_machines_without_them() -> None:
    cpus = Price(
        Sku("cpu.16x", Shape(None, 0, 16, 64, 100), CapacityShape.VM, Tier.LISTED), Nano(USD), book=1
    )
    over = Use({H100: 5}, Nano(0), Nano(0))
    for envelope in (Envelope(gpus=0), Envelope(gpus=4), Envelope(gpus_of_model={H100: 4})):
        applied = Applied(Level.PROJECT, envelope, over)
        assert isinstance(verdict(applied, price=cpus), Admitted), envelope
        assert isinstance(verdict(applied), NotAdmitted), envelope
