"""The history of samples as files: which hours are kept for it, which are given up, and what a manifest says."""

import json
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.db.tables.telemetry import SAMPLE_SLOTS
from control_plane.domain.ids import OrganizationId
from control_plane.domain.sample_archive import (
    HOUR,
    KEPT_HOURS,
    KEPT_HOURS_MAX,
    ArchivedFile,
    begun,
    file_key,
    files_of,
    hour_of,
    hours_to_keep,
    lost,
    manifest,
    manifest_key,
)
from tests.support.clock import START

NOW = hour_of(START) + timedelta(minutes=20)
ORGANIZATION = OrganizationId(UUID(int=7))


def _ago(hours: int) -> datetime:
    return hour_of(NOW) - HOUR * hours


def test_an_hour_that_is_not_written_stays_until_its_partition_is_needed() -> None:
    for unwritten, kept in (((), 2), ((0, 1), 2), ((2,), 2), ((3,), 3), ((4, 1), 3), ((9,), 3)):
        assert hours_to_keep([_ago(hours) for hours in unwritten], NOW) == kept, unwritten


def test_the_hours_that_stay_leave_room_for_what_comes_and_for_the_next_two_hours() -> None:
    assert KEPT_HOURS_MAX + 3 == SAMPLE_SLOTS


@given(st.sets(st.integers(0, 12)))
def test_an_hour_is_given_up_exactly_when_it_is_not_kept(ages: set[int]) -> None:
    unwritten = [_ago(hours) for hours in sorted(ages)]
    kept = hours_to_keep(unwritten, NOW)
    assert KEPT_HOURS <= kept <= KEPT_HOURS_MAX
    assert lost(unwritten, NOW) == [hour for hour in sorted(unwritten) if hour < _ago(kept)]


def test_an_archive_begins_with_the_hours_that_are_still_there() -> None:
    assert begun(NOW) == [_ago(2), _ago(1), _ago(0)]


def test_files_lie_by_organization_date_and_hour_and_the_manifest_names_them_with_their_digests() -> None:
    keys = [file_key(ORGANIZATION, _ago(0), part) for part in (0, 1)]
    assert keys[0] == (
        "organization=org_00000000000000000000000000000007"
        f"/date={NOW:%Y-%m-%d}/hour={NOW:%H}/samples-000.parquet"
    )
    files = [ArchivedFile(key, ORGANIZATION, 5, 100, "ab" * 32) for key in reversed(keys)]
    body = manifest(_ago(0), files, received=40, every_seconds=60)
    assert body == manifest(_ago(0), files[::-1], received=40, every_seconds=60)
    said = json.loads(body)
    assert (said["received"], said["rows"], said["rule"]["every_seconds"]) == (40, 10, 60)
    assert said["files"][0]["sha256"] == "ab" * 32
    assert files_of(body) == keys
    assert manifest_key(_ago(0)) == f"manifests/date={NOW:%Y-%m-%d}/hour={NOW:%H}.json"


def test_what_is_no_manifest_names_no_file_to_delete() -> None:
    elsewhere = ("/etc/hosts", "organization=x/../../y", "manifests/date=2026-11-28/hour=15.json")
    others = [json.dumps({"files": [{"key": key}]}).encode() for key in elsewhere]
    for content in (b"", b"[]", b'{"files": 5}', b'{"files": [{}]}', b'"files"', *others):
        with pytest.raises(ValueError, match="no manifest of samples"):
            files_of(content)
