"""Checks the chains of the audit log in the database: every line, the heads, and the checkpoints."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from control_plane.db import audit
from control_plane.db.audit import Chain
from control_plane.db.engine import Database
from control_plane.domain.audit_chain import Head, chain_name, check, checkpoint_text
from control_plane.domain.ids import OrganizationId
from control_plane.vault.audit_keys import is_signed

LINES_PER_READ = 5_000
LAST_PLACE = 2**62


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of one chain."""

    chain: str
    lines: int
    why: str | None
    """The first thing that is wrong; None when the chain is whole."""

    def __str__(self) -> str:
        return f"{self.chain}: {self.lines} lines, {self.why or 'whole'}"


async def every_chain(db: Database) -> AsyncIterator[Checked]:
    """Check one chain after the other, in statements of a bounded size."""
    async with db.reading() as connection:
        chains = await audit.chains(connection)
        known = await audit.owners(connection)
    missing = known - {chain.organization_id for chain in chains}
    for organization_id in sorted(missing, key=str):
        yield Checked(chain_name(organization_id), 0, "the chain has lines or checkpoints, and no head")
    for chain in chains:
        yield await one_chain(db, chain)


async def one_chain(db: Database, chain: Chain) -> Checked:
    name, tenant = chain_name(chain.organization_id), chain.organization_id
    async with db.reading() as connection:
        reached = await audit.beginning(connection, tenant)
        checkpoints = await audit.checkpoints(connection, tenant)
    lines = 0
    while True:
        async with db.reading() as connection:
            found = await audit.after(connection, tenant, after=reached.sequence, limit=LINES_PER_READ)
        for sealed in found:
            broken = check(sealed, reached)
            if broken is not None:
                return Checked(name, lines, broken.why)
            reached, lines = sealed.head, lines + 1
            if checkpoints.get(reached.sequence, reached.hash) != reached.hash:
                return Checked(
                    name, lines, f"line {reached.sequence} has another hash than at its checkpoint"
                )
        if len(found) < LINES_PER_READ:
            why = _cut_off(chain, reached.sequence, checkpoints) or await _wrong_signature(db, tenant)
            return Checked(name, lines, why)


async def _wrong_signature(db: Database, tenant: OrganizationId | None) -> str | None:
    """What is wrong with the signatures of a chain's checkpoints. One that follows a signed one has to be signed."""
    async with db.reading() as connection:
        unsigned = await audit.unsigned_after(connection, tenant)
        signed = await audit.signed(connection, tenant, first=0, last=LAST_PLACE)
    if unsigned is not None:
        return f"the checkpoint at line {unsigned} is not signed, although an earlier one is"
    for each in signed:
        text = checkpoint_text(tenant, Head(each.sequence, each.hash), at=each.at, key_id=each.key_id)
        public, signature = bytes.fromhex(each.public), bytes.fromhex(each.signature)
        if not is_signed(text, key_id=each.key_id, public=public, signature=signature):
            return f"the signature of the checkpoint at line {each.sequence} is not that of its key"
    return None


def _cut_off(chain: Chain, last: int, checkpoints: dict[int, str]) -> str | None:
    """Whether the chain once was longer."""
    longest = max([chain.sequence, *checkpoints])
    return None if last >= longest else f"line {last + 1} is missing: the chain reached to line {longest}"
