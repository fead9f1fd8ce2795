"""The administrator's commands, which run in a role of their own: bootstrap, top-ups, master keys, the price book."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from control_plane.db import organizations as organization_rows
from control_plane.db import secrets, signing_keys
from control_plane.db.connection import Connection
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.audit import Act, Happening, SubjectKind
from control_plane.domain.ids import MalformedIdError, OrganizationId, Prefix, off_wire, on_wire
from control_plane.domain.ledger import Approval
from control_plane.domain.money import Nano
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.role import Role
from control_plane.domain.scope import ORGANIZATION, PLATFORM, Scope
from control_plane.domain.secret import MasterKey
from control_plane.domain.signing_key import VERIFIES_AFTER, Phase, SigningKey
from control_plane.services import api_keys, audit, catalogue, ledger, organizations, sla_terms
from control_plane.services.api_keys import IssuedKey
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class FirstOrganization:
    id: OrganizationId
    issued: IssuedKey
    """The key of its owner, or of the operator."""
    finance: IssuedKey | None = None
    """The key that posts money; None unless it is the platform's organization."""


async def bootstrap(
    world: World, name: str, *, platform: bool = False, top_up: Nano | None, gpu_quota: int
) -> FirstOrganization | Refused:
    """Create an organization with its first service account and key, and its first top-up if any, in one transaction.

    A customer's first service account is its owner. The platform's organization gets an operator, and another account
    with the role `finance`, because who runs machines posts no money.
    """
    organization_id = OrganizationId(world.new_id())
    async with world.db.transaction(organization_id) as connection:
        refused = await organizations.create(
            connection, world, organization_id, name, gpu_quota=gpu_quota, platform=platform
        )
        if refused is not None:
            return refused
        if top_up is not None:
            await ledger.top_up(
                connection,
                world,
                organization_id,
                top_up,
                key=f"{organization_id.hex}:bootstrap",
                approval=Approval(ADMINISTRATOR.name, "first top-up"),
            )
        issue = partial(_first_key, connection, world, organization_id)
        if not platform:
            return FirstOrganization(organization_id, await issue(Role.OWNER, ORGANIZATION))
        operator, finance = await issue(Role.OPERATOR, PLATFORM), await issue(Role.FINANCE, PLATFORM)
    return FirstOrganization(organization_id, operator, finance)


async def _first_key(
    connection: Connection, world: World, organization_id: OrganizationId, role: Role, scope: Scope
) -> IssuedKey:
    """A service account that is named after its role, with a key."""
    account = await organizations.create_first_account(
        connection, world, organization_id, role.value, role=role, scope=scope
    )
    return await api_keys.issue(connection, world, organization_id, account.subject, name="first key")


async def top_up(world: World, organization: str, amount: Nano, *, key: str) -> bool | Refused:
    """Post a top-up of an organization, given by name or id, once per key. False when it was posted before."""
    async with world.db.transaction() as connection:
        found = await _organization(connection, organization)
        if isinstance(found, Refused):
            return found
        return await ledger.top_up(
            connection,
            world,
            found,
            amount,
            key=f"{found.hex}:{key}",
            approval=Approval(ADMINISTRATOR.name, key),
        )


async def set_master_key(world: World, organization: str, master: MasterKey | None) -> Refused | None:
    """Let an organization, given by name or id, use a master key of its own, or with None the installation's again."""
    async with world.db.transaction() as connection:
        found = await _organization(connection, organization)
        if isinstance(found, Refused):
            return found
        await secrets.set_master(connection, found, master, now=world.now())
    return None


def recorded(world: World, event: Happening | Permission, organization: str | None) -> World:
    """The world of one command, whose transactions write a line of the audit log.

    `organization`: the name or the id of the one that the command is about.
    """

    async def record(connection: Connection) -> None:
        found = None if organization is None else await _organization(connection, organization)
        about = () if found is None or isinstance(found, Refused) else (on_wire(Prefix.ORGANIZATION, found),)
        act = Act(
            organization_id=None,
            event=event.value,
            subject=ADMINISTRATOR.name,
            subject_kind=SubjectKind.ADMINISTRATOR,
            targets=about,
            rule="host",
        )
        await audit.record(connection, world, act, surely=False)

    return replace(world, db=world.db.recording(record, begin=audit.begin))


async def _organization(connection: Connection, organization: str) -> OrganizationId | Refused:
    found = await organization_rows.named(connection, organization)
    if found is not None:
        return found
    try:
        known = await organization_rows.get(
            connection, OrganizationId(off_wire(Prefix.ORGANIZATION, organization))
        )
    except MalformedIdError:
        known = None
    if known is None:
        return Refused(RefusalCode.NOT_FOUND, f"There is no organization {organization!r}.")
    return known.id


@dataclass(frozen=True, slots=True)
class LoadedBook:
    skus: int
    """How many it has."""
    version: int | None
    """None when no price changed, which makes no new version."""


async def load_price_book(
    world: World, text: str, *, effective_from: datetime | None = None
) -> LoadedBook | Refused:
    """Put a price book in force now, or from a moment to come."""
    book = catalogue.parse_price_book(text)
    async with world.db.transaction() as connection:
        loaded = await catalogue.load_price_book(connection, world, book, effective_from=effective_from)
    return loaded if isinstance(loaded, Refused) else LoadedBook(len(book), loaded)


async def withdraw_price_book(world: World, version: int) -> Refused | None:
    """Let a price book that is not in force yet never be."""
    async with world.db.transaction() as connection:
        return await catalogue.withdraw_price_book(connection, world, version)


async def load_sla_terms(world: World, text: str) -> bool:
    """Put terms of service levels in force. False when they are in force already."""
    terms = sla_terms.parse_terms(text)
    async with world.db.transaction() as connection:
        return await sla_terms.load(connection, world, terms)


async def keys_of_tokens(world: World) -> list[tuple[SigningKey, Phase]]:
    """The keys that verify access tokens, or soon will, the first one first."""
    now = world.now()
    async with world.db.reading() as connection:
        found = await signing_keys.signed_after(connection, now - VERIFIES_AFTER)
    phases = [(stored.key, stored.key.phase(now)) for stored in found]
    return [(key, phase) for key, phase in phases if phase is not Phase.OVER]


async def remove_key_of_tokens(world: World, key_id: str) -> Refused | None:
    """Let a key that may have leaked verify nothing any more. The API makes another one when it needs it."""
    async with world.db.transaction() as connection:
        if await signing_keys.remove(connection, key_id, now=world.now()):
            return None
    return Refused(RefusalCode.NOT_FOUND, f"There is no key {key_id!r}, or it is removed already.")
