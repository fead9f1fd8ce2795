"""The life of an SSH authority: each step of a rotation waits for the machines, but not for ever."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.domain.ids import SecretId
from control_plane.domain.ssh_authority import (
    STRAGGLERS_WAITED_FOR,
    TRUSTED_AFTER,
    TRUSTED_BEFORE,
    Due,
    SshAuthority,
    SshAuthorityState,
    due,
    fingerprint,
)
from tests.support.clock import START

SECOND = timedelta(seconds=1)
SIGNING = SshAuthority(
    UUID(int=1), "ssh-ed25519 ONE", SecretId(UUID(int=1)), SshAuthorityState.SIGNING, START, START, None, None
)


def _authority(state: SshAuthorityState, *, since: datetime = START) -> SshAuthority:
    retired = since if state in {SshAuthorityState.RETIRED, SshAuthorityState.DISTRUSTED} else None
    return replace(
        SIGNING, id=UUID(int=2), public_key="ssh-ed25519 TWO", state=state, made_at=since, retired_at=retired
    )


def _due(
    authorities: list[SshAuthority], now: datetime, *, machines: bool = False, hub: bool = False
) -> Due | None:
    return due(authorities, machines_behind=machines, hub_behind=hub, now=now)


def test_each_step_waits_for_its_time_for_the_hub_and_for_the_machines_a_day_at_most() -> None:
    for state, wait, after in (
        (SshAuthorityState.NEXT, TRUSTED_BEFORE, SshAuthorityState.SIGNING),
        (SshAuthorityState.RETIRED, TRUSTED_AFTER, SshAuthorityState.REMOVED),
        (SshAuthorityState.DISTRUSTED, TRUSTED_BEFORE, SshAuthorityState.REMOVED),
    ):
        other = _authority(state)
        both = [SIGNING, other]
        assert _due(both, START + wait - SECOND) is None, state
        assert _due(both, START + wait) == Due(other, after), state
        assert _due(both, START + STRAGGLERS_WAITED_FOR - SECOND, machines=True) is None, state
        assert _due(both, START + STRAGGLERS_WAITED_FOR, machines=True) == Due(other, after), state
        assert _due(both, START + 100 * STRAGGLERS_WAITED_FOR, hub=True) is None, state


def test_what_signs_or_was_removed_stays_as_it_is() -> None:
    for years in (0, 10):
        now = START + timedelta(days=365 * years)
        assert _due([SIGNING], now) is None
        assert _due([SIGNING, _authority(SshAuthorityState.REMOVED)], now) is None


def test_the_fingerprint_is_that_of_a_set() -> None:
    assert fingerprint(["a", "b"]) == fingerprint(["b", "a"])
    assert len({fingerprint(keys) for keys in ([], ["a"], ["a", "b"], ["ab"])}) == 4
