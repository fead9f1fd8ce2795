"""Ids and names in paths, and names in queries.

In a path, one that cannot be read does not exist, so that the answer is 404 in both cases.
"""

import re
from datetime import datetime
from uuid import UUID

from litestar.params import QueryParameter

from control_plane.api.errors import ApiError
from control_plane.domain.ids import LeaseId, MalformedIdError, OrganizationId, Prefix, off_wire
from control_plane.domain.period import parse_month
from control_plane.domain.refusal import RefusalCode
from control_plane.wire.common import NAME_LENGTH_MAX, NAME_PATTERN

_LOWER_HEX = re.compile(r"[a-z]+_[0-9a-f]{32}", re.ASCII)
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_LINE = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def read_id(prefix: Prefix, text: str, *, code: RefusalCode = RefusalCode.NOT_FOUND) -> UUID:
    try:
        # An id has one spelling. Python would also read capitals, signs and underscores as hexadecimal.
        if _LOWER_HEX.fullmatch(text):
            return off_wire(prefix, text)
    except MalformedIdError:
        pass  # Refused below, like any other text that is not an id.
    raise ApiError(code, f"There is nothing with this id here. An id looks like {prefix}_0190c2...")


def read_lease_id(text: str) -> LeaseId:
    return LeaseId(read_id(Prefix.LEASE, text, code=RefusalCode.LEASE_NOT_FOUND))


def read_organization_id(text: str) -> OrganizationId:
    return OrganizationId(read_id(Prefix.ORGANIZATION, text))


def read_month(text: str) -> datetime:
    """The first instant of a month in a path. Any other text is not found."""
    try:
        return parse_month(text)
    except ValueError:
        raise ApiError(
            RefusalCode.NOT_FOUND, "There is no such period. A period looks like 2026-11."
        ) from None


def read_line(text: str) -> int:
    """The number of a line of a document in a path. Any other text is not found."""
    if _LINE.fullmatch(text):
        return int(text)
    raise ApiError(RefusalCode.NOT_FOUND, "There is no such line. A document numbers its lines from 1.")


def read_word(noun: str, text: str) -> str:
    """The name or the id of something in a path. Raises a 404 for a text that is neither."""
    if len(text) <= NAME_LENGTH_MAX and _NAME.match(text):
        return text
    raise ApiError(RefusalCode.NOT_FOUND, f"There is no {noun} with this name or this id.")


def word_in_query(name: str, description: str) -> QueryParameter:
    """A name, or an id, by which a list is filtered."""
    return QueryParameter(
        name=name, pattern=NAME_PATTERN, max_length=NAME_LENGTH_MAX, description=description
    )
