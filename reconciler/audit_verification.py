"""Checks the chains of the audit log in the database: every line, the heads, and the checkpoints."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from control_plane.db import audit
from control_plane.db.audit import Chain
from control_plane.db.engine import Database
from control_plane.domain.audit_chain import chain_name, check

LINES_PER_READ = 5_000


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
            return Checked(name, lines, _cut_off(chain, reached.sequence, checkpoints))


def _cut_off(chain: Chain, last: int, checkpoints: dict[int, str]) -> str | None:
    """Whether the chain once was longer."""
    longest = max([chain.sequence, *checkpoints])
    return None if last >= longest else f"line {last + 1} is missing: the chain reached to line {longest}"
