"""Codes that machines read: one spelling, no doubles; and how long a failed attempt waits."""

import re
from datetime import timedelta
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.backoff import delay
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.lease import EndReason, LeaseEvent, LeaseState
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import MachineEvent, MachineState
from control_plane.domain.organization import OrganizationEvent, OrganizationState
from control_plane.domain.placement import RejectCode
from control_plane.domain.pool_claim import PoolRejectCode
from control_plane.domain.progress import Step
from control_plane.domain.proof import Occasion, ProofOutcome, Tier
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import REGION_PATTERN, CapacityShape, region_within
from control_plane.domain.verification import MismatchCode

CODES: list[type[StrEnum]] = [
    RefusalCode,
    RejectCode,
    PoolRejectCode,
    MismatchCode,
    Tier,
    ProofOutcome,
    Occasion,
    FailReason,
    EndReason,
    LeaseState,
    LeaseEvent,
    MachineState,
    MachineEvent,
    OrganizationState,
    OrganizationEvent,
    Step,
    ListedState,
    AccountKind,
    TransactionKind,
    CapacityShape,
]
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("codes", CODES, ids=lambda codes: codes.__name__)
def test_codes_are_snake_case_and_no_two_are_the_same(codes: type[StrEnum]) -> None:
    # An alias of an enum is not a member: a code given twice would vanish in silence.
    assert len(codes.__members__) == len(codes)
    for code in codes:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code.value), code


@pytest.mark.parametrize("codes", [RefusalCode, RejectCode, FailReason], ids=lambda codes: codes.__name__)
def test_a_code_is_called_what_it_says(codes: type[StrEnum]) -> None:
    for code in codes:
        assert code.name.lower() == code.value


def test_gpu_models_are_words_that_need_no_quoting() -> None:
    for model in GpuModel:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", model.value), model


@given(st.integers(1, 10_000))
def test_a_delay_grows_to_its_ceiling_and_never_beyond(attempt: int) -> None:
    ceiling = timedelta(minutes=5)
    now, later = (
        delay(attempt, first=SECOND, ceiling=ceiling),
        delay(attempt + 1, first=SECOND, ceiling=ceiling),
    )
    assert SECOND <= now <= later <= ceiling


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (5, 15)])
def test_a_delay_doubles(attempt: int, seconds: int) -> None:
    assert delay(attempt, first=SECOND, ceiling=15 * SECOND) == seconds * SECOND


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_one(attempt: int) -> None:
    with pytest.raises(ValueError, match="from one"):
        delay(attempt, first=SECOND, ceiling=SECOND)


@pytest.mark.parametrize(
    ("region", "wanted", "within"),
    [
        ("eu-central-1", "eu", True),
        ("eu-central-1", "eu-central", True),
        ("eu-central-1", "eu-central-1", True),
        ("eu-central-1", "eu-cent", False),
        ("eu-central-1", "eu-central-11", False),
        ("eu-central-11", "eu-central-1", False),
        ("eu", "eu-central-1", False),
        ("us-east-1", "eu", False),
    ],
)
def test_a_region_lies_in_its_jurisdiction_and_in_no_half_word(
    region: str, wanted: str, within: bool
) -> None:
    assert region_within(region, wanted) is within
    assert CapacityRequest("a", regions=(wanted,)).allows_region(region) is within


def test_a_request_without_constraints_allows_everything() -> None:
    assert CapacityRequest("a").allows_region("us-east-1")
    assert CapacityRequest("a").allows_provider("anyone")


@pytest.mark.parametrize("region", ["us", "us-east-1", "eu-central-1"])
def test_our_regions_start_with_a_jurisdiction(region: str) -> None:
    assert REGION_PATTERN.fullmatch(region)


@pytest.mark.parametrize("region", ["", "u", "usa", "US", "us-", "us_east", "-us", "us east"])
def test_other_words_are_no_regions(region: str) -> None:
    assert not REGION_PATTERN.fullmatch(region)
