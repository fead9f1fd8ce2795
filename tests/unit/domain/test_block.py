"""What a refused order says about other orders: exactly what it covers, and for how long."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from control_plane.domain.block import (
    CONSEQUENCES,
    Block,
    Blocks,
    BlockScope,
    block_after,
    in_force,
)
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano
from control_plane.domain.placement import Offer
from control_plane.domain.sku import Shape

START = datetime(2026, 11, 23, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
REFUSED = Offer(
    key="a/main:eu-1a:gpu_8x",
    account="a/main",
    provider="a",
    region="eu-central-1",
    native_region="eu-1a",
    native_type="gpu_8x",
    shape=Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100),
    capacity="vm",
    cost_nano_per_hour=Nano(7),
    available=True,
    confidence="live",
    observed_at=START,
)
OTHERS = {
    "the same": REFUSED,
    "another type": replace(REFUSED, native_type="gpu_1x"),
    "another zone": replace(REFUSED, native_region="eu-1b"),
    "another type in another zone": replace(REFUSED, native_type="gpu_1x", native_region="eu-1b"),
    "another region": replace(REFUSED, region="us-east-1", native_region="us-1a"),
    "another type and region": replace(
        REFUSED, native_type="gpu_1x", region="us-east-1", native_region="us-1a"
    ),
    "another account": replace(REFUSED, account="a/spare"),
    "another provider": replace(REFUSED, account="b", provider="b"),
    "the same as spot": replace(REFUSED, spot=True),
}
COVERED = {
    BlockScope.OFFER: {"the same"},
    BlockScope.TYPE: {"the same", "another zone", "another region"},
    BlockScope.ZONE: {"the same", "another type"},
    BlockScope.REGION: {"the same", "another type", "another zone", "another type in another zone"},
    BlockScope.ACCOUNT: set(OTHERS) - {"another account", "another provider"},
    BlockScope.PROVIDER: set(OTHERS) - {"another provider"},
}
OFFER, REGION, ACCOUNT = BlockScope.OFFER, BlockScope.REGION, BlockScope.ACCOUNT
EXPECTED = {
    FailReason.NO_CAPACITY: (OFFER, 3),
    FailReason.QUOTA_REACHED: (REGION, 5),
    FailReason.ORDER_REFUSED: (OFFER, 15),
    FailReason.UNAUTHORIZED: (ACCOUNT, 5),
    FailReason.NOT_TAKEN: (ACCOUNT, 1),
}
"""By reason: what it covers, and for how many minutes. All others say nothing about other orders."""


def after(reason: FailReason, scope: BlockScope | None = None, *, now: datetime = START) -> Block:
    block = block_after(REFUSED, reason, now=now, scope=scope)
    assert block is not None
    return block


def covered(blocks: Blocks) -> set[str]:
    return {name for name, offer in OTHERS.items() if blocks.of(offer) is not None}


def test_every_reason_blocks_what_its_scope_covers_and_nothing_else_for_its_time() -> None:
    assert set(CONSEQUENCES) == set(FailReason)
    for reason in FailReason:
        block = block_after(REFUSED, reason, now=START)
        if reason not in EXPECTED:
            assert block is None, reason
            continue
        scope, minutes = EXPECTED[reason]
        assert block is not None, reason
        assert (block.scope, block.reason) == (scope, reason)
        end = START + timedelta(minutes=minutes)
        assert covered(in_force([block], end - MOMENT)) == COVERED[scope], reason
        assert covered(in_force([block], end)) == set(), reason


def test_the_scope_that_the_providers_answer_names_wins() -> None:
    for reason in EXPECTED:
        for scope in BlockScope:
            block = after(reason, scope)
            assert covered(in_force([block], START)) == COVERED[scope], (reason, scope)
            assert block.until == after(reason).until, "the time follows from the reason"
    assert block_after(REFUSED, FailReason.NEVER_BOOTED, now=START, scope=BlockScope.PROVIDER) is None


def test_of_blocks_that_cover_an_offer_the_one_that_ends_last_counts() -> None:
    early, late = after(FailReason.NO_CAPACITY), after(FailReason.NO_CAPACITY, now=START + MOMENT)
    wide = after(FailReason.QUOTA_REACHED)
    for blocks in ([early, late], [late, early]):
        assert in_force(blocks, START).of(REFUSED) == late
        assert in_force([*blocks, wide], START).of(REFUSED) == wide
        assert in_force([*blocks, wide], START).of(OTHERS["another type"]) == wide


def test_every_scope_says_what_it_covers() -> None:
    subjects = {scope: after(FailReason.NO_CAPACITY, scope).subject for scope in BlockScope}
    assert len(set(subjects.values())) == len(BlockScope)
    assert subjects[BlockScope.OFFER] == "gpu_8x in eu-1a"
