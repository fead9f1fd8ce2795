"""The world of loops that reach machines over SSH."""

from dataclasses import dataclass

from data_plane.access.port import Access
from data_plane.inspection.bundle import Bundle
from reconciler.ssh_authorities import SshAuthorities
from reconciler.worlds.accounts import AccountWorld


@dataclass(frozen=True, kw_only=True)
class AccessWorld(AccountWorld):
    access: Access
    ssh_authorities: SshAuthorities
    agent: Bundle
