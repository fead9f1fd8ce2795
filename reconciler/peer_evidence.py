"""What was read at one end of a tunnel, as evidence: a removed key is not there any more, a next key is there.

Nodes that leave, and nodes that change their keys, each have a list of the members that they wait for. A member is
struck off when it was read and lists what it should, and when it is no member any more.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import overlays
from control_plane.db.connection import Connection
from control_plane.db.overlays import ChangeRow, RemovalRow
from control_plane.domain import peer_map
from control_plane.domain.ids import ClusterId, NodeId, OrganizationId
from control_plane.domain.node_key import KeyChange, still_waited_for
from control_plane.domain.overlay import RELAY_NUMBER
from control_plane.domain.peer_map import Holder, Member, Overlay, Version
from control_plane.domain.peer_removal import Reading, Removal, still_holding


@dataclass(frozen=True, slots=True)
class Known:
    """What the worker that holds an overlay knows about it."""

    cluster_id: ClusterId
    token: UUID
    overlay: Overlay
    versions: Mapping[Holder, Version]
    removed: Collection[NodeId]
    """The nodes that were off the map when it was loaded."""
    relays: Collection[OrganizationId]
    """Whose relay the hub may have."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The keys that an end lists."""

    number: int
    """Of the member; `RELAY_NUMBER` for the relay of an organization."""
    keys: frozenset[str]
    asked_at: datetime
    """An answer that was on its way during a removal does not count."""
    organization_id: OrganizationId | None = None
    """Whose relay it is."""


async def settle(connection: Connection, known: Known, listed: Listed | None, now: datetime) -> None:
    """Strike off who need not be waited for any more. Without `listed`: only those that are gone."""
    for removal in await overlays.lock_removals(connection, known.cluster_id):
        if removal.node_id not in known.removed:
            continue  # It was removed after the peers were computed.
        left = _holding(known, removal, listed)
        if left != sorted(removal.holders):
            await overlays.keep_holders(
                connection, known.cluster_id, removal.node_id, left, token=known.token, now=now
            )
    for change in await overlays.lock_changes(connection, known.cluster_id):
        member = member_with(known.overlay, change.number)
        if member is None:
            continue  # It came after the peers were computed.
        left = _waited_for(known, change, member, listed)
        if left != sorted(change.holders):
            await overlays.keep_key_holders(
                connection, known.cluster_id, change.node_id, left, token=known.token, now=now
            )


def member_with(overlay: Overlay, number: int) -> Member | None:
    """The node with this number; None when it is not on the map."""
    return next((each for group in overlay.nodes.values() for each in group if each.number == number), None)


def numbers(holders: Collection[Holder], *, has_relay: bool) -> frozenset[int]:
    """Holders of one node's keys by number: those of members, and `RELAY_NUMBER` if it has a relay."""
    members = frozenset(holder for holder in holders if isinstance(holder, int))
    return members | {RELAY_NUMBER} if has_relay else members


def _holding(known: Known, row: RemovalRow, listed: Listed | None) -> list[int]:
    keys = frozenset(key for key in (row.public_key, row.next_key, row.old_key) if key is not None)
    removal = Removal(keys, frozenset(row.holders), row.removed_at)
    gone = set(row.holders) - _present(known, row.organization_id)
    readings: dict[Holder, Reading] = {}
    if listed is not None and _concerns(listed, row.organization_id):
        readings[listed.number] = Reading(listed.keys, listed.asked_at)
    found = still_holding(removal, readings, gone=gone)
    return sorted(holding.holder for holding in found if isinstance(holding.holder, int))


def _waited_for(known: Known, row: ChangeRow, member: Member, listed: Listed | None) -> list[int]:
    change = KeyChange(row.next_key, row.old_key, row.holders, row.waits_since)
    listing: Collection[int] = _present(known, row.organization_id)
    if row.next_key is not None:
        holders = peer_map.holders_of(known.overlay, member)
        listing = numbers(
            holders, has_relay=row.organization_id in known.relays and row.organization_id in holders
        )
    reading = None
    if listed is not None and _concerns(listed, row.organization_id):
        reading = (listed.number, listed.keys)
    return still_waited_for(change, reading, listing)


def _present(known: Known, organization_id: OrganizationId) -> frozenset[int]:
    return numbers(known.versions.keys(), has_relay=organization_id in known.relays)


def _concerns(listed: Listed, organization_id: OrganizationId) -> bool:
    """A relay says something about the nodes of its own organization only."""
    return listed.organization_id in {None, organization_id}
