"""Brings the peer map of each cluster to its members: the cluster's server, and its nodes.

While the rows have not changed since nothing was left to do, and nobody has to be read again, nothing is computed.

A member is set up when what it was last set up as differs from the map, and once in a while to find and repair what
was changed there; `domain/overlay_turn.py` says whose turn it is. What its interface lists afterwards is the evidence
that a node which left is in it no more, and that it knows the next key of a node that changes its key. Relays come
before members: see `reconciler/relays.py`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import overlays, server_hosts
from control_plane.db import relays as relay_rows
from control_plane.db.overlays import ChangeRow, MemberRow, RemovalRow
from control_plane.db.relays import RelayRow
from control_plane.domain import peer_map
from control_plane.domain.cluster import ServerHost
from control_plane.domain.ids import ClusterId, OrganizationId
from control_plane.domain.overlay import RELAY_NUMBER
from control_plane.domain.overlay_turn import Due, next_to_set_up
from control_plane.domain.peer_map import Configuration, Overlay, Version
from data_plane.access.port import AccessError, NotCertified, Target
from data_plane.mesh.tunnels import Interface
from reconciler import relays
from reconciler.loop import Loop, Report, each
from reconciler.overlay import map_of, peers_of, place_of
from reconciler.overlay_hold import HELD_FOR, hold, kept
from reconciler.peer_evidence import Known, Listed, settle
from reconciler.relays import Kept, RelayWork
from reconciler.server_hosts import target
from reconciler.server_keys import ServerKey, change_key
from reconciler.worlds.clusters import ClusterWorld

NAME = "sync_overlay"
OVERLAYS_PER_ACTIVATION_MAX = 8
EVERY = timedelta(seconds=2)
LASTS = timedelta(minutes=5)
"""Longer than the calls to slow machines take in one activation."""
READ_AGAIN_AFTER = timedelta(minutes=5)
"""How often a member is set up again that should not have changed."""
_AGE_MAX_SECONDS = 86_400 * 365
"""Of a handshake: what a machine says is bounded."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the rows say about one overlay."""

    cluster_id: ClusterId
    token: UUID
    fence: int
    rows: Mapping[int, MemberRow]
    server: Target
    server_key: str
    overlay: Overlay
    relays: Sequence[RelayRow]
    removals: Sequence[RemovalRow]
    changes: Sequence[ChangeRow]
    loaded_at: datetime

    @property
    def waiting(self) -> list[tuple[OrganizationId, list[int]]]:
        """Nodes that leave or change their keys: whose they are, and whom they wait for."""
        leaving = [(row.organization_id, row.holders) for row in self.removals]
        return leaving + [(row.organization_id, row.holders) for row in self.changes]

    @property
    def waited_for(self) -> frozenset[int]:
        return frozenset(number for _, holders in self.waiting for number in holders)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done about the members of one overlay."""

    loaded: _Loaded
    overlay: Overlay
    versions: Mapping[peer_map.Holder, Version]
    known: Known


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        await overlays.add_missing(connection, now=now)
        due = await overlays.take(
            connection, token=token, now=now, until=now + HELD_FOR, limit=OVERLAYS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == OVERLAYS_PER_ACTIVATION_MAX)

    async def act(overlay: overlays.Overlay) -> None:
        async with kept(world, overlay.cluster_id, token):
            await _sync(world, overlay, token, report)

    await each(due, act, report)
    return report


async def _sync(world: ClusterWorld, row: overlays.Overlay, token: UUID, report: Report) -> None:
    problems: list[str] = []
    quiet: tuple[str, datetime] | None = None
    async with world.db.reading() as connection:
        digest = await overlays.digest(connection, row.cluster_id)
    if digest == row.quiet_digest and row.quiet_until is not None and world.now() < row.quiet_until:
        await _give_back(world, row, token, quiet=(digest, row.quiet_until))
        return
    try:
        plan = await _plan(world, row, await _load(world, row, token, problems), problems)
        stale = _stale(plan, row, world.now())
        if not stale and not problems and _is_settled(plan, row):
            quiet = digest, _next_reading(plan, row)
        await each(
            stale,
            lambda configuration: _apply(world, plan, configuration, report, problems),
            report,
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, operators read it, and the overlay is given back
        problems.append(f"server: {type(error).__name__}: {error}")
        if isinstance(error, NotCertified) or not isinstance(error, AccessError):
            report.errors.append(problems[-1])
    report.notes.extend(problems)
    await _give_back(world, row, token, quiet=quiet, why="; ".join(sorted(problems)) or None)


async def _give_back(
    world: ClusterWorld,
    row: overlays.Overlay,
    token: UUID,
    *,
    quiet: tuple[str, datetime] | None,
    why: str | None = None,
) -> None:
    due_at = world.now() + EVERY
    async with world.db.statement() as connection:
        await overlays.give_back(connection, row.cluster_id, token=token, due_at=due_at, why=why, quiet=quiet)


async def _load(world: ClusterWorld, row: overlays.Overlay, token: UUID, problems: list[str]) -> _Loaded:
    async with world.db.reading() as connection:
        (host,) = await server_hosts.of_cluster(connection, row.cluster_id)
    server = target(host)
    key = await _server_key(world, row, host, token, problems)
    loaded_at = world.now()
    async with world.db.transaction() as connection:
        # In one transaction: a node is in the map or among the removals, and never in both.
        found = await overlays.members(connection, row.cluster_id)
        removals = await overlays.removals(connection, row.cluster_id)
        changes = await overlays.changes(connection, row.cluster_id)
        relay_list = await relay_rows.of_cluster(connection, row.cluster_id)
    identities = Kept({relay.organization_id: relay for relay in relay_list}, []).relays
    return _Loaded(
        cluster_id=row.cluster_id,
        token=token,
        fence=row.fence,
        rows={member.number: member for member in found},
        server=server,
        server_key=key.public_key,
        overlay=map_of(row.block, key.member(host.outside), found, identities),
        relays=relay_list,
        removals=removals,
        changes=changes,
        loaded_at=loaded_at,
    )


async def _server_key(
    world: ClusterWorld, row: overlays.Overlay, host: ServerHost, token: UUID, problems: list[str]
) -> ServerKey:
    if row.public_key is not None:
        return await change_key(world, row, row.public_key, host, token=token, problems=problems)
    key = await world.members.make_key(target(host))
    async with world.db.statement() as connection:
        await overlays.keep_server_key(connection, row.cluster_id, key, token=token)
    return ServerKey(key)


async def _plan(world: ClusterWorld, row: overlays.Overlay, loaded: _Loaded, problems: list[str]) -> _Plan:
    """Bring the relays to the hub, and say what the members have to be set up as with them."""
    versions = peer_map.versions(loaded.overlay)
    work = RelayWork(
        cluster_id=loaded.cluster_id,
        token=loaded.token,
        fence=loaded.fence,
        overlay=loaded.overlay,
        versions=versions,
        rows=loaded.relays,
        to_read={whose for whose, holders in loaded.waiting if RELAY_NUMBER in holders},
        read_after=READ_AGAIN_AFTER,
        is_ending=row.is_ending,
    )
    kept = await relays.keep(world, work, problems)
    overlay = loaded.overlay
    if kept.relays != overlay.relays:
        overlay = dataclasses.replace(overlay, relays=kept.relays)
        versions = peer_map.versions(overlay)
    removed = {removal.node_id for removal in loaded.removals}
    known = Known(loaded.cluster_id, loaded.token, overlay, versions, removed, kept.rows.keys())
    told = [Listed(RELAY_NUMBER, each.keys, each.asked_at, each.organization_id) for each in kept.told]
    if loaded.waited_for:
        async with world.db.transaction() as connection:
            for listed in (None, *told):
                await settle(connection, known, listed, world.now())
    return _Plan(loaded, overlay, versions, known)


def _stale(plan: _Plan, row: overlays.Overlay, now: datetime) -> list[Configuration]:
    """Who is set up now, of those that differ, that somebody waits for, or that were not read for long."""
    loaded = plan.loaded

    def due(number: int) -> Due | None:
        member = loaded.rows.get(number)
        applied, read_at, tries, tried_at = (
            (row.applied_version, row.read_at, row.tries, row.tried_at)
            if member is None
            else (member.applied_version, member.peers_read_at, member.peers_tries, member.peers_tried_at)
        )
        differs = applied != plan.versions[number] or number in loaded.waited_for
        is_old = read_at is None or now - read_at >= READ_AGAIN_AFTER
        return Due(number, differs, tries, tried_at) if differs or is_old else None

    numbers = [holder for holder in plan.versions if isinstance(holder, int)]
    chosen = next_to_set_up([found for number in numbers if (found := due(number)) is not None], now)
    wanted = {each.member.number: each for each in peer_map.configurations(plan.overlay, set(chosen))}
    return [wanted[number] for number in chosen]


def _is_settled(plan: _Plan, row: overlays.Overlay) -> bool:
    """Whether only a change of the rows, or the next reading, brings something to do."""
    changes_key = row.next_key is not None or row.old_key is not None
    relays_end = any(relay.unneeded_since is not None for relay in plan.loaded.relays)
    failing = row.tries > 0 or any(member.peers_tries > 0 for member in plan.loaded.rows.values())
    return not (plan.loaded.waiting or changes_key or relays_end or failing)


def _next_reading(plan: _Plan, row: overlays.Overlay) -> datetime:
    loaded = plan.loaded
    read_at = [row.read_at, *(member.peers_read_at for member in loaded.rows.values())]
    read_at += [relay.read_at for relay in loaded.relays]
    return min(at for at in read_at if at is not None) + READ_AGAIN_AFTER


async def _apply(
    world: ClusterWorld,
    plan: _Plan,
    configuration: Configuration,
    report: Report,
    problems: list[str],
) -> None:
    loaded, number = plan.loaded, configuration.member.number
    row = loaded.rows.get(number)
    asked_at = world.now()
    try:
        await hold(world, loaded.cluster_id, loaded.token)
        interface = await world.members.apply(
            loaded.server if row is None else _machine(row),
            place_of(plan.overlay, configuration),
            peers_of(configuration),
            fence=loaded.fence,
        )
    except (AccessError, ValueError) as error:
        problems.append(f"member {number}: {type(error).__name__}: {error}")
        if isinstance(error, NotCertified):  # It is our fault, and nobody was asked.
            report.errors.append(problems[-1])
        else:
            await _failed(world, loaded, row)
        return
    async with world.db.transaction() as connection:
        if loaded.waited_for:  # First: other members are read side by side, and their rows are among these.
            await settle(connection, plan.known, Listed(number, interface.keys, asked_at), world.now())
        version = plan.versions[number]
        if row is None:
            await overlays.server_applied(
                connection, loaded.cluster_id, version, token=loaded.token, read_at=loaded.loaded_at
            )
        else:
            await overlays.node_applied(
                connection,
                loaded.cluster_id,
                row.node_id,
                version,
                token=loaded.token,
                read_at=loaded.loaded_at,
                handshake_at=_handshake_at(interface, loaded.server_key, world.now()),
            )
    report.count(1)


async def _failed(world: ClusterWorld, loaded: _Loaded, row: MemberRow | None) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        if row is None:
            await overlays.server_failed(connection, loaded.cluster_id, token=loaded.token, now=now)
        else:
            await overlays.node_failed(
                connection, loaded.cluster_id, row.node_id, token=loaded.token, now=now
            )


def _handshake_at(interface: Interface, server_key: str, now: datetime) -> datetime | None:
    """When the node's tunnel with the server last had a handshake; None when it had none."""
    ages = [tunnel.handshake_seconds for tunnel in interface.tunnels if tunnel.public_key == server_key]
    seconds = ages[0] if ages else None
    return None if seconds is None else now - timedelta(seconds=min(seconds, _AGE_MAX_SECONDS))


def _machine(row: MemberRow) -> Target:
    if row.address is None or row.host_key is None:
        raise ValueError(f"{row.node_id} is on a machine without an address or a host key")
    return Target(row.address, row.ssh_port, row.host_key, row.launch_key)


LOOP = Loop(NAME, EVERY, activate, lasts=LASTS, wakes=("join_nodes", "leave_nodes", "rotate_node_keys"))
