"""The audit log: writing what requests and administrators do, and reading it."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import audit, audit_lists
from control_plane.db.audit_lists import Filter
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain.audit import Act, AuditLine, SubjectKind
from control_plane.domain.audit_chain import EMPTY, Head, SealedLine, beginning, end, with_checkpoints
from control_plane.domain.ids import OrganizationId, Prefix, ServiceAccountId, on_wire
from control_plane.domain.subject import Subject
from control_plane.domain.subject import SubjectKind as KindOfSubject
from control_plane.world import World

__all__ = ["Filter"]  # For controllers, which must not import the layer below.
LINES_PER_READ = 500


async def begin(connection: Connection) -> None:
    """Begin to count what a transaction changes, for `record`."""
    await audit.begin(connection)


async def record(connection: Connection, world: World, act: Act, *, surely: bool) -> None:
    """Write the lines of an act in the transaction of its effect, which acts for the act's organization.

    Unless it `surely` took effect, it did when the transaction has written a row: one that found nothing to change is
    answered with a refusal, which has a line of its own.
    """
    if not surely and not await audit.has_changed(connection):
        return
    now = world.now()
    await audit.insert(connection, [act.line(world.new_id(), now)])
    for other in act.others:
        if act.organization_id is None:
            await audit.insert(connection, [act.line_of(other, world.new_id(), now)])
        else:
            async with acting_for(connection, other, back_to=act.organization_id):
                await audit.insert(connection, [act.line_of(other, world.new_id(), now)])


async def store(world: World, organization_id: OrganizationId | None, lines: Sequence[AuditLine]) -> None:
    """Store lines about no change: refusals and failures of an organization, or refused sign-ins of nobody yet.

    May be repeated.
    """
    insert = audit.insert_refused_sign_ins if organization_id is None else audit.insert
    async with world.db.transaction(organization_id) as connection:
        await insert(connection, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedSecret:
    """A request with a key that opens nothing: what is known of it, without the key."""

    digest: bytes
    event: str
    address: str | None
    client: str | None
    region: str | None
    request_id: str


async def acts_of_refused_keys(world: World, secrets: Sequence[RefusedSecret]) -> list[Act]:
    """What was tried with keys that are somebody's and are not accepted any more. Unknown keys are nobody's."""
    if not secrets:
        return []
    async with world.db.reading() as connection:
        known = await audit_lists.refused_keys(connection, [secret.digest for secret in secrets])
    keys = {key.secret_sha256: key for key in known}
    return [_act_of(secret, keys[secret.digest]) for secret in secrets if secret.digest in keys]


def _act_of(secret: RefusedSecret, key: audit_lists.RefusedKey) -> Act:
    subject = (
        Subject(KindOfSubject.USER, key.user_id)
        if key.user_id is not None
        else Subject(KindOfSubject.SERVICE_ACCOUNT, ServiceAccountId(key.service_account_id or UUID(int=0)))
    )
    return Act(
        organization_id=key.organization_id,
        event=secret.event,
        subject=subject.on_wire,
        subject_kind=SubjectKind(subject.kind.value),
        credential=on_wire(Prefix.API_KEY, key.api_key_id),
        address=secret.address,
        client=secret.client,
        region=secret.region,
        request_id=secret.request_id,
    )


async def page(
    world: World,
    organization_id: OrganizationId,
    wanted: Filter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[SealedLine]:
    """Lines of an organization, newest first."""
    async with world.db.reading(organization_id) as connection:
        return await audit_lists.page(connection, organization_id, wanted, before=before, limit=limit)


async def page_of_all(
    world: World,
    organization_id: OrganizationId | None,
    wanted: Filter,
    *,
    platform: bool,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[SealedLine]:
    """Lines of one organization, of the platform's chain alone, or of every chain. Each is read as its own tenant."""
    async with world.db.reading() as connection:
        places = await audit_lists.places_of_all(
            connection, organization_id, wanted, platform=platform, before=before, limit=limit
        )
    by_tenant: dict[OrganizationId | None, list[UUID]] = defaultdict(list)
    for place in places:
        by_tenant[place.organization_id].append(place.id)
    found: list[SealedLine] = []
    for tenant, ids in by_tenant.items():
        async with world.db.reading(tenant) as connection:
            found += await audit_lists.of_ids(connection, ids)
    return sorted(found, key=lambda sealed: (sealed.line.at, sealed.line.id), reverse=True)


async def head(world: World, organization_id: OrganizationId | None) -> Head | None:
    """The last line of a chain; None while it has none."""
    async with world.db.reading(organization_id) as connection:
        chain = await audit.chain_of(connection, organization_id)
    return None if chain is None else chain.head


async def export(world: World, organization_id: OrganizationId | None, *, after: int) -> AsyncIterator[bytes]:
    """A chain behind a place as an export: it ends with the head as it is when the export begins."""
    async with world.db.reading(organization_id) as connection:
        chain = await audit.chain_of(connection, organization_id)
        last = EMPTY if chain is None else chain.head
        start = max(after, 0 if chain is None else chain.pruned_sequence)
        before = await audit.head_at(connection, organization_id, start)
    reached = before if before is not None and start <= last.sequence else last
    yield beginning(organization_id, reached)
    while reached.sequence < last.sequence:
        async with world.db.reading(organization_id) as connection:
            found = await audit.after(
                connection, organization_id, after=reached.sequence, limit=LINES_PER_READ
            )
            signed = await audit.signed(
                connection,
                organization_id,
                first=reached.sequence + 1,
                last=found[-1].sequence if found else reached.sequence,
            )
        kept = [sealed for sealed in found if sealed.sequence <= last.sequence]
        if not kept:
            return  # Without its end, so that whoever checks it finds what is missing.
        reached = kept[-1].head
        yield with_checkpoints(organization_id, kept, signed)
    yield end(organization_id, last)
