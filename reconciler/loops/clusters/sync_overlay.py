"""Brings the peer map of each cluster to its members: the cluster's server, and its nodes.

A member is set up when what it was last set up as differs from the map, and once in a while to find and repair what
was changed there; `domain/overlay_turn.py` says whose turn it is. What its interface lists afterwards is the evidence
that a node which left is in it no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import overlays, server_hosts
from control_plane.db.connection import Connection
from control_plane.db.overlays import MemberRow, RemovalRow
from control_plane.domain import peer_map
from control_plane.domain.ids import ClusterId
from control_plane.domain.overlay_turn import Due, next_to_set_up
from control_plane.domain.peer_map import Configuration, Version
from control_plane.domain.peer_removal import Reading, Removal, still_holding
from data_plane.access.port import AccessError, NotCertified, Target
from reconciler.loop import Loop, Report, each
from reconciler.overlay import map_of, peers_of, place_of, server_member
from reconciler.server_hosts import target
from reconciler.worlds.clusters import ClusterWorld

NAME = "sync_overlay"
OVERLAYS_PER_ACTIVATION_MAX = 8
HELD_FOR = timedelta(minutes=5)
"""Longer than applying to all members takes, which is done side by side."""
EVERY = timedelta(seconds=2)
READ_AGAIN_AFTER = timedelta(minutes=5)
"""How often a member is set up again that should not have changed."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done about one overlay."""

    cluster_id: ClusterId
    token: UUID
    overlay: peer_map.Overlay
    versions: Mapping[peer_map.Holder, Version]
    rows: Mapping[int, MemberRow]
    server: Target
    removals: Sequence[RemovalRow]
    loaded_at: datetime


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        await overlays.add_missing(connection, now=now)
        due = await overlays.take(
            connection, token=token, now=now, until=now + HELD_FOR, limit=OVERLAYS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == OVERLAYS_PER_ACTIVATION_MAX)
    await each(due, lambda overlay: _sync(world, overlay, token, report), report)
    return report


async def _sync(world: ClusterWorld, row: overlays.Overlay, token: UUID, report: Report) -> None:
    problems: list[str] = []
    try:
        plan = await _plan(world, row, token)
        await each(
            _stale(plan, row, world.now()),
            lambda configuration: _apply(world, plan, configuration, report, problems),
            report,
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, operators read it, and the overlay is given back
        problems.append(f"server: {type(error).__name__}: {error}")
        if isinstance(error, NotCertified) or not isinstance(error, AccessError):
            report.errors.append(problems[-1])
    report.notes.extend(problems)
    async with world.db.statement() as connection:
        why = "; ".join(sorted(problems)) or None
        await overlays.give_back(connection, row.cluster_id, token=token, due_at=world.now() + EVERY, why=why)


async def _plan(world: ClusterWorld, row: overlays.Overlay, token: UUID) -> _Plan:
    async with world.db.reading() as connection:
        (host,) = await server_hosts.of_cluster(connection, row.cluster_id)
    server = target(host)
    key = row.public_key
    if key is None:
        key = await world.members.make_key(server)
        async with world.db.statement() as connection:
            await overlays.keep_server_key(connection, row.cluster_id, key, token=token)
    async with world.db.transaction() as connection:
        # In one transaction: a node is in the map or among the removals, and never in both.
        found = await overlays.members(connection, row.cluster_id)
        removals = await overlays.removals(connection, row.cluster_id)
    overlay = map_of(row.block, server_member(key, host.outside), found)
    rows = {member.number: member for member in found}
    versions = peer_map.versions(overlay)
    return _Plan(row.cluster_id, token, overlay, versions, rows, server, removals, world.now())


def _stale(plan: _Plan, row: overlays.Overlay, now: datetime) -> list[Configuration]:
    """Who is set up now, of those that differ, still hold a removed key, or were not read for long."""
    holders = {number for removal in plan.removals for number in removal.holders}

    def due(number: int) -> Due | None:
        member = plan.rows.get(number)
        applied, read_at, tries, tried_at = (
            (row.applied_version, row.read_at, row.tries, row.tried_at)
            if member is None
            else (member.applied_version, member.peers_read_at, member.peers_tries, member.peers_tried_at)
        )
        differs = applied != plan.versions[number] or number in holders
        is_old = read_at is None or now - read_at >= READ_AGAIN_AFTER
        return Due(number, differs, tries, tried_at) if differs or is_old else None

    configurations = {each.member.number: each for each in peer_map.configurations(plan.overlay)}
    stale = [found for number in configurations if (found := due(number)) is not None]
    chosen = next_to_set_up(stale, now)
    if not chosen and holders - plan.versions.keys():
        return list(configurations.values())[:1]  # Whoever is read strikes off those that are gone.
    return [configurations[number] for number in chosen]


async def _apply(
    world: ClusterWorld,
    plan: _Plan,
    configuration: Configuration,
    report: Report,
    problems: list[str],
) -> None:
    number = configuration.member.number
    row = plan.rows.get(number)
    asked_at = world.now()
    try:
        interface = await world.members.apply(
            plan.server if row is None else _machine(row),
            place_of(plan.overlay, configuration),
            peers_of(configuration),
        )
    except (AccessError, ValueError) as error:
        problems.append(f"member {number}: {type(error).__name__}: {error}")
        if isinstance(error, NotCertified):  # It is our fault, and nobody was asked.
            report.errors.append(problems[-1])
        else:
            await _failed(world, plan, row)
        return
    async with world.db.transaction() as connection:
        version = plan.versions[number]
        if row is None:
            await overlays.server_applied(
                connection, plan.cluster_id, version, token=plan.token, read_at=plan.loaded_at
            )
        else:
            await overlays.node_applied(
                connection, plan.cluster_id, row.node_id, version, token=plan.token, read_at=plan.loaded_at
            )
        await _settle_removals(connection, plan, number, Reading(interface.keys, asked_at))
    report.count(1)


async def _failed(world: ClusterWorld, plan: _Plan, row: MemberRow | None) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        if row is None:
            await overlays.server_failed(connection, plan.cluster_id, token=plan.token, now=now)
        else:
            await overlays.node_failed(connection, plan.cluster_id, row.node_id, token=plan.token, now=now)


def _machine(row: MemberRow) -> Target:
    if row.address is None or row.host_key is None:
        raise ValueError(f"{row.node_id} is on a machine without an address or a host key")
    return Target(row.address, row.ssh_port, row.host_key, row.launch_key)


async def _settle_removals(connection: Connection, plan: _Plan, number: int, reading: Reading) -> None:
    """Whoever was read without a removed key does not hold it any more; nor does who is no member any more."""
    for row in await overlays.lock_removals(connection, plan.cluster_id):
        if row.node_id not in {removal.node_id for removal in plan.removals}:
            continue  # It was removed after this member's peers were computed.
        removed = frozenset(key for key in (row.public_key, row.next_key) if key is not None)
        removal = Removal(removed, frozenset(row.holders), row.removed_at)
        gone = set(row.holders) - plan.versions.keys()
        found = still_holding(removal, {number: reading}, gone=gone)
        left = sorted(holding.holder for holding in found if isinstance(holding.holder, int))
        if left != sorted(row.holders):
            await overlays.keep_holders(
                connection, plan.cluster_id, row.node_id, left, token=plan.token, now=reading.read_at
            )


LOOP = Loop(NAME, EVERY, activate, lasts=HELD_FOR, wakes=("join_nodes", "leave_nodes"))
