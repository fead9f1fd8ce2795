"""Who is to blame when it cannot be found out whether a member hears its cluster's server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from data_plane.access.port import AccessError, HostKeyChanged, LoginRefused, Session, Target
from data_plane.mesh.members import ServerAway, SshMembers
from tests.unit.data_plane.mesh.test_node import OneAnswer

SERVER, MEMBER = Target("198.51.100.2", 22, "a key", "server"), Target("192.0.2.7", 22, "a key", "member")


class _Access:
    def __init__(self, failures: dict[Target, AccessError]) -> None:
        self.failures = failures

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Session]:
        if target in self.failures:
            raise self.failures[target]
        yield OneAnswer("")


async def test_a_server_that_cannot_be_reached_is_told_apart_from_a_member_that_cannot() -> None:
    refused, changed = LoginRefused("no such user"), HostKeyChanged("another one")
    with pytest.raises(ServerAway, match="the cluster's server: HostKeyChanged"):
        await SshMembers(_Access({SERVER: changed})).hears(MEMBER, SERVER)
    with pytest.raises(LoginRefused):
        await SshMembers(_Access({SERVER: changed, MEMBER: refused})).hears(MEMBER, SERVER)
    assert not await SshMembers(_Access({})).hears(MEMBER, SERVER)
