"""Queries on the terms of service levels."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, write
from control_plane.domain.sla import AvailabilityCredit, SlaOffer, SlaTier, Terms


@dataclass(frozen=True, slots=True)
class _Row:
    """The terms of a tier, one field per column."""

    tier: SlaTier
    ready_seconds: int | None
    ready_credit_bp: int
    replacement_seconds: int | None
    replacement_credit_bp: int
    degraded_seconds: int | None
    notice_seconds: int | None
    notice_credit_bp: int
    availability: tuple[AvailabilityCredit, ...]
    replace_before_end: bool
    priority: int


@dataclass(frozen=True, slots=True)
class _Versioned(_Row):
    version: int


_COLUMNS = ", ".join(field.name for field in fields(_Row))
_LATEST = "SELECT max(version) FROM sla_terms WHERE effective_from <= :now"
_IN_FORCE = text(f"SELECT version, {_COLUMNS} FROM sla_terms WHERE version = ({_LATEST}) ORDER BY tier")
_OF_VERSIONS = text(f"SELECT version, {_COLUMNS} FROM sla_terms WHERE version = ANY(:versions)")
_TERMS = Recordset(_Row, "terms")
_PUT = text(f"""
INSERT INTO sla_terms (version, effective_from, {_COLUMNS})
SELECT (SELECT coalesce(max(version), 0) + 1 FROM sla_terms), :now, {_COLUMNS} FROM {_TERMS}
""")
# Two files that are loaded at the same time become two consecutive versions.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('sla_terms'))")


async def in_force(connection: Connection, now: datetime) -> list[SlaOffer]:
    """What each tier promises with leases that are created at `now`, least first; empty when nothing is promised."""
    found = [_offer(row) for row in await read(connection, _IN_FORCE, _Versioned, now=now)]
    return sorted(found, key=lambda offer: list(SlaTier).index(offer.terms.tier))


async def of_versions(connection: Connection, versions: Sequence[int]) -> dict[tuple[int, SlaTier], Terms]:
    """The terms of every tier in these versions."""
    found = await read(connection, _OF_VERSIONS, _Versioned, versions=list(versions))
    return {(row.version, row.tier): _offer(row).terms for row in found}


async def put(connection: Connection, terms: Sequence[Terms], now: datetime) -> bool:
    """Put terms in force from `now` on, as a new version. False when they are in force already."""
    await connection.execute(_ONE_AT_A_TIME, {})
    before = {offer.terms.tier: offer.terms for offer in await in_force(connection, now)}
    if before == {each.tier: each for each in terms}:
        return False
    rows = [_Row(**{field.name: getattr(each, field.name) for field in fields(_Row)}) for each in terms]
    return bool(await write(connection, _PUT, terms=_TERMS.document(rows), now=now))


def _offer(row: _Versioned) -> SlaOffer:
    return SlaOffer(row.version, Terms(**{field.name: getattr(row, field.name) for field in fields(_Row)}))
