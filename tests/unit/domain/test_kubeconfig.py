"""What becomes of a kubeconfig, decided without a cluster."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.cluster import Cluster, ClusterState
from control_plane.domain.ids import ClusterId, KubeconfigId, OrganizationId, ProjectId, UserId
from control_plane.domain.kubeconfig import (
    LASTS_MAX,
    LASTS_MIN,
    LIVE_MAX,
    WAITS_MAX,
    Close,
    Issue,
    IssuingRefusal,
    Kubeconfig,
    KubeconfigRole,
    KubeconfigState,
    Refuse,
    Remove,
    Revocation,
    Wait,
    decide,
    namespace_of,
    refusal,
)
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.wire.kubeconfigs import LASTS_MINUTES_MAX, LASTS_MINUTES_MIN
from data_plane.cluster import kubeconfig as in_cluster
from data_plane.cluster.objects.tenant import Tenant

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WANTED = Kubeconfig(
    id=KubeconfigId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    project_id=ProjectId(UUID(int=3)),
    cluster_id=ClusterId(UUID(int=4)),
    name="laptop",
    role=KubeconfigRole.EDIT,
    lasts_seconds=3_600,
    recipient=bytes(32),
    subject=Subject(SubjectKind.USER, UserId(UUID(int=5))),
    credential="key_1",
    credential_ends_at=None,
    rotates=None,
    overlap_seconds=None,
    requested_at=NOW,
)
ISSUED = replace(WANTED, issued_at=NOW, expires_at=NOW + HOUR, sealed=b"file")
REVOKED = replace(ISSUED, revoked_at=NOW, revoked_why=Revocation.REQUESTED)
REFUSED = replace(WANTED, refused_at=NOW, refused_why=IssuingRefusal.WAITED_TOO_LONG)
S = ClusterState


def test_a_request_is_met_for_as_long_as_it_says_and_no_longer_than_its_credential_lasts() -> None:
    assert decide(WANTED, S.READY, NOW) == Issue(NOW + HOUR)
    ends = replace(WANTED, credential_ends_at=NOW + timedelta(minutes=20))
    assert decide(ends, S.READY, NOW) == Issue(NOW + timedelta(minutes=20))
    assert decide(ends, S.READY, NOW + timedelta(minutes=4)) == Issue(NOW + timedelta(minutes=20))
    over = replace(WANTED, credential_ends_at=NOW)
    assert decide(over, S.READY, NOW) == Refuse(IssuingRefusal.CREDENTIAL_ENDED)


def test_a_request_that_nobody_waits_for_any_more_or_whose_cluster_goes_is_refused() -> None:
    moment = timedelta(microseconds=1)
    assert isinstance(decide(WANTED, S.READY, NOW + WAITS_MAX - moment), Issue)
    assert decide(WANTED, S.READY, NOW + WAITS_MAX) == Refuse(IssuingRefusal.WAITED_TOO_LONG)
    for state in (S.BUILDING, S.DELETING, S.GONE):
        assert decide(WANTED, state, NOW) == Refuse(IssuingRefusal.CLUSTER_DELETED), state


def test_what_is_over_is_removed_from_its_cluster_unless_that_is_gone() -> None:
    for over, now in (
        (REVOKED, NOW),
        (REFUSED, NOW),
        (ISSUED, NOW + HOUR),
        (replace(WANTED, revoked_at=NOW, revoked_why=Revocation.REQUESTED), NOW),
    ):
        for state in (S.READY, S.DELETING, S.BUILDING):
            assert decide(over, state, now) == Remove(), (over, state)
        assert decide(over, S.GONE, now) == Close()
    assert decide(ISSUED, S.READY, NOW) == Wait(NOW + HOUR)
    assert decide(ISSUED, S.GONE, NOW) == Close()


def test_the_state_follows_from_what_is_stored_and_from_the_time() -> None:
    expected = {
        KubeconfigState.WANTED: (WANTED, NOW),
        KubeconfigState.ISSUED: (ISSUED, NOW + HOUR - timedelta(seconds=1)),
        KubeconfigState.EXPIRED: (ISSUED, NOW + HOUR),
        KubeconfigState.REVOKED: (REVOKED, NOW + HOUR),
        KubeconfigState.REFUSED: (REFUSED, NOW),
    }
    assert expected.keys() == set(KubeconfigState)
    for state, (kubeconfig, now) in expected.items():
        assert kubeconfig.state(now) is state


def test_a_replaced_one_ends_after_the_overlap_and_never_later_than_it_was_to() -> None:
    assert ISSUED.end_of_overlap(NOW, timedelta(0)) == NOW
    assert ISSUED.end_of_overlap(NOW, timedelta(minutes=30)) == NOW + timedelta(minutes=30)
    assert ISSUED.end_of_overlap(NOW, timedelta(hours=2)) == NOW + HOUR


def test_none_is_requested_of_a_cluster_that_is_not_ready_or_when_there_are_too_many() -> None:
    cluster = Cluster(
        *(ClusterId(UUID(int=4)), None, "eu-1", "eu", S.READY, 1, 0, "v1", "https://k", "pem", 0),
        *(None, None, None, NOW, NOW, None),
    )
    assert refusal(cluster, LIVE_MAX - 1) is None
    for state in set(S) - {S.READY}:
        refused = refusal(replace(cluster, state=state), 0)
        assert refused is not None
        assert (refused.code, state in refused.why) == ("cluster_not_ready", True)
    refused = refusal(cluster, LIVE_MAX)
    assert refused is not None
    assert refused.code == "kubeconfigs_too_many"


def test_what_the_planes_say_separately_is_the_same() -> None:
    assert (LASTS_MIN, LASTS_MAX) == (in_cluster.LIFE_MIN, in_cluster.LIFE_MAX)
    assert (LASTS_MIN.seconds // 60, LASTS_MAX.days * 24 * 60) == (LASTS_MINUTES_MIN, LASTS_MINUTES_MAX)
    assert set(map(str, KubeconfigRole)) == set(map(str, in_cluster.Role))
    project = WANTED.project_id
    assert namespace_of(project) == Tenant("org_1", f"prj_{project.hex}").namespace
