"""The terms of service levels: read from a file, put in force, listed."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from control_plane.db import sla_terms
from control_plane.db.connection import Connection
from control_plane.domain.request import PRIORITY_DEFAULT
from control_plane.domain.sla import AvailabilityCredit, SlaOffer, SlaTier, Terms
from control_plane.world import World

SECONDS_MAX = 31 * 86_400
_PERCENT = re.compile(r"(\d{1,3})(?:\.(\d{1,2}))?%")
_PROMISES = ("ready", "replacement", "notice")
"""Promises with a time and a credit."""
_FIELDS = {
    *(f"{promise}_{field}" for promise in _PROMISES for field in ("seconds", "credit")),
    *("degraded_seconds", "availability", "replace_before_end", "priority"),
}


class SlaTermsError(ValueError):
    """Terms are invalid. The message names the tier and its fault."""


def parse_terms(text: str) -> list[Terms]:
    """Read terms in TOML: one table per tier, with times in seconds and shares as text, such as `"99.5%"`.

    A promise that is left out is not made. The shipped file, `control_plane/sla_terms.toml`, explains each field.
    Raises SlaTermsError.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SlaTermsError(f"not TOML: {error}") from error
    unknown = sorted(tables.keys() - set(SlaTier))
    if unknown:
        raise SlaTermsError(f"there is no tier {unknown[0]!r}; the tiers are {', '.join(SlaTier)}")
    if not tables:
        raise SlaTermsError("it has no tier; write [bronze]")
    return [_checked(tier, tables[tier]) for tier in SlaTier if tier in tables]


def _checked(tier: SlaTier, table: object) -> Terms:
    if not isinstance(table, dict):
        raise SlaTermsError(f"{tier!r} must be a table: write [{tier}]")
    try:
        return _terms(tier, table)
    except ValueError as error:
        raise SlaTermsError(f"[{tier}]: {error}") from error


def _terms(tier: SlaTier, table: dict[str, Any]) -> Terms:
    unknown = sorted(table.keys() - _FIELDS)
    if unknown:
        raise ValueError(f"there is no field {unknown[0]!r}; the fields are {', '.join(sorted(_FIELDS))}")
    for promise in _PROMISES:
        if f"{promise}_credit" in table and f"{promise}_seconds" not in table:
            raise ValueError(f"'{promise}_credit' needs '{promise}_seconds'")
    replaces = table.get("replace_before_end", False)
    if not isinstance(replaces, bool):
        raise ValueError("'replace_before_end' must be true or false")  # noqa: TRY004 - the file is wrong, not a type in our code
    return Terms(
        tier=tier,
        ready_seconds=_seconds(table, "ready_seconds"),
        ready_credit_bp=_credit(table, "ready_credit"),
        replacement_seconds=_seconds(table, "replacement_seconds"),
        replacement_credit_bp=_credit(table, "replacement_credit"),
        degraded_seconds=_seconds(table, "degraded_seconds"),
        notice_seconds=_seconds(table, "notice_seconds"),
        notice_credit_bp=_credit(table, "notice_credit"),
        availability=_availability(table.get("availability", [])),
        replace_before_end=replaces,
        priority=_count(table, "priority", 100) if "priority" in table else PRIORITY_DEFAULT,
    )


def _availability(steps: object) -> tuple[AvailabilityCredit, ...]:
    if not isinstance(steps, list) or not all(
        isinstance(step, dict) and step.keys() == {"below", "credit"} for step in steps
    ):
        raise ValueError("'availability' must be a list of tables with `below` and `credit`")
    return tuple(
        AvailabilityCredit(_basis_points("below", step["below"]), _basis_points("credit", step["credit"]))
        for step in steps
    )


def _seconds(table: dict[str, Any], field: str) -> int | None:
    return _count(table, field, SECONDS_MAX) if field in table else None


def _credit(table: dict[str, Any], field: str) -> int:
    return _basis_points(field, table[field]) if field in table else 0


def _count(table: dict[str, Any], field: str, most: int) -> int:
    value = table[field]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{field!r} must be a whole number from 0 to {most}")
    return value


def _basis_points(field: str, value: object) -> int:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'{field!r} must be a share with at most two decimal places, such as "99.5%"')
    return int(found[1]) * 100 + int((found[2] or "").ljust(2, "0"))


async def load(connection: Connection, world: World, terms: Sequence[Terms]) -> bool:
    """Put terms in force for leases that are created from now on. False when they are in force already."""
    return await sla_terms.put(connection, terms, world.now())


async def in_force(world: World) -> Sequence[SlaOffer]:
    """What each tier promises with leases that are created now, least first; empty when nothing is promised."""
    async with world.db.reading() as connection:
        return await sla_terms.in_force(connection, world.now())
