"""Keeps the relays of a cluster on the hub: one for each organization that has two nodes behind NAT there.

A relay is told of its nodes before these get it, so that their first packets find it. When a node is removed, the
relay is told before the members are. A relay that nobody needs any more has no peers at once, and later no place.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import relays
from control_plane.db.relays import RelayRow
from control_plane.domain import peer_map
from control_plane.domain.ids import ClusterId, OrganizationId
from control_plane.domain.peer_map import Overlay, Relay, Version
from data_plane.access.port import AccessError, Unreachable
from data_plane.mesh.port import NETWORKS_MAX, RELAYS_MAX
from reconciler.overlay import hub_peers, relay_network, sync_relay
from reconciler.overlay_hold import LOST, hold
from reconciler.worlds.clusters import ClusterWorld

KEPT_FOR = timedelta(minutes=10)
"""So long a relay that nobody needs keeps its place: the next node behind NAT often comes soon."""
_WITHOUT_PEERS: Version = "none"


@dataclass(frozen=True, slots=True)
class RelayWork:
    """What is to be done about the relays of one overlay, by the worker that holds it."""

    cluster_id: ClusterId
    token: UUID
    fence: int
    overlay: Overlay
    versions: Mapping[peer_map.Holder, Version]
    rows: Sequence[RelayRow]
    to_read: Collection[OrganizationId]
    """Whose relay has to be read now, although it may be as it should be: it may list a key that has to go."""
    read_after: timedelta
    """How often the hub is told again."""
    is_ending: bool
    """Whether the cluster is being deleted."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the hub was told about a relay; it lists exactly these keys."""

    organization_id: OrganizationId
    keys: frozenset[str]
    asked_at: datetime


@dataclass
class Kept:
    """The relays as they are now."""

    rows: dict[OrganizationId, RelayRow]
    told: list[Told]

    @property
    def relays(self) -> dict[OrganizationId, Relay]:
        """Those that nodes can be given."""
        return {
            row.organization_id: Relay(row.public_key, row.endpoint)
            for row in self.rows.values()
            if row.public_key is not None and row.endpoint is not None
        }


async def keep(world: ClusterWorld, work: RelayWork, problems: list[str]) -> Kept:
    """Bring the relays of an overlay to the hub. What fails is a problem, and is tried again.

    The members wait meanwhile, so a hub that cannot be reached is asked once: it is one host.
    """
    kept = Kept({row.organization_id: row for row in work.rows}, [])
    needed = peer_map.relays_needed(work.overlay)
    for organization_id in sorted(needed | kept.rows.keys()):
        try:
            await _keep_one(world, work, kept, organization_id, is_needed=organization_id in needed)
        except AccessError as error:
            problems.append(f"relay of {organization_id}: {type(error).__name__}: {error}")
            if isinstance(error, Unreachable):
                break
    return kept


async def _keep_one(
    world: ClusterWorld, work: RelayWork, kept: Kept, organization_id: OrganizationId, *, is_needed: bool
) -> None:
    row = kept.rows.get(organization_id) or await _placed(world, work, organization_id)
    kept.rows[organization_id] = row
    now = world.now()
    if not is_needed and _is_over(work, row, now):
        await hold(world, work.cluster_id, work.token)
        await world.hub.drop(relay_network(work.overlay, NETWORKS_MAX + row.number), fence=work.fence)
        async with world.db.statement() as connection:
            await relays.forget(connection, work.cluster_id, organization_id, token=work.token)
        del kept.rows[organization_id]
    elif _is_stale(work, row, now):
        kept.rows[organization_id] = await _told(world, work, kept, row, is_needed=is_needed)


async def _placed(world: ClusterWorld, work: RelayWork, organization_id: OrganizationId) -> RelayRow:
    """A relay with a place on the hub, which is stored before the hub is told. Raises AccessError."""
    async with world.db.transaction() as connection:
        row = await relays.add(
            connection, work.cluster_id, organization_id, numbers=RELAYS_MAX, token=work.token
        )
    if row is None:
        raise AccessError(f"all {RELAYS_MAX} places for relays on the hub are taken")
    return row


def _is_over(work: RelayWork, row: RelayRow, now: datetime) -> bool:
    since = row.unneeded_since
    return since is not None and (work.is_ending or now >= since + KEPT_FOR)


def _is_stale(work: RelayWork, row: RelayRow, now: datetime) -> bool:
    differs = row.applied_version != _wanted(work, row)
    old = row.read_at is None or now - row.read_at >= work.read_after
    return differs or old or row.organization_id in work.to_read


def _wanted(work: RelayWork, row: RelayRow) -> Version:
    return work.versions.get(row.organization_id, _WITHOUT_PEERS)


async def _told(
    world: ClusterWorld, work: RelayWork, kept: Kept, row: RelayRow, *, is_needed: bool
) -> RelayRow:
    organization_id = row.organization_id
    read_at = world.now()
    await hold(world, work.cluster_id, work.token)
    number = NETWORKS_MAX + row.number
    identity = await sync_relay(world.hub, work.overlay, organization_id, number, fence=work.fence)
    async with world.db.transaction() as connection:
        stored = await relays.applied(
            connection,
            work.cluster_id,
            organization_id,
            public_key=identity.public_key,
            endpoint=identity.endpoint,
            version=_wanted(work, row),
            needed=is_needed,
            read_at=read_at,
            token=work.token,
        )
    if stored is None:
        raise AccessError(LOST)
    peers = hub_peers(work.overlay, organization_id)
    keys = frozenset(key for peer in peers for key in (peer.public_key, peer.next_key) if key is not None)
    kept.told.append(Told(organization_id, keys, read_at))
    return stored
