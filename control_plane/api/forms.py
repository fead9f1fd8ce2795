"""Requests of browsers and OAuth clients: queries and forms, and a door that passes over parameters it does not know.

RFC 6749 demands both: unknown parameters are ignored, and none may be there twice (section 3.1).
"""

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl

from control_plane.api.errors import ApiError
from control_plane.api.requests import AnyRequest, ApiRequest, arrive, context_of, refuse_wrong_clock

FIELDS_MAX = 32
VALUE_LENGTH_MAX = 4_096
_FORM = "application/x-www-form-urlencoded"


async def lenient(request: AnyRequest) -> None:
    """The door of endpoints that need no API key and ignore what they do not know."""
    arrive(request)
    refuse_wrong_clock(request)
    await wait_at_sign_in(request)


async def of_credentials(request: AnyRequest) -> None:
    """The door of endpoints whose forms hold credentials. Each handler counts its request when it has read the form."""
    arrive(request)
    refuse_wrong_clock(request)


async def wait_at_sign_in(request: AnyRequest) -> None:
    """Count a request without a credential; beyond the rate of its address it waits. Raises ApiError."""
    door = context_of(request).door
    await door.arrive_at_sign_in(door.address(request.scope), time.monotonic())


def query(request: ApiRequest) -> Mapping[str, str]:
    """The query. Raises ApiError."""
    raw: bytes = request.scope["query_string"]
    return _fields(raw)


async def form(request: ApiRequest) -> Mapping[str, str]:
    """The form that is the request's body. Raises ApiError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise ApiError("unsupported_media_type", f"Send the body as `Content-Type: {_FORM}`.")
    return _fields(await request.body())


def _fields(raw: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=False, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise ApiError(
            "bad_request", "The form is not percent-encoded UTF-8, or has too many fields."
        ) from None
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise ApiError("bad_request", "A field of the form is there twice.")
    if any(len(value) > VALUE_LENGTH_MAX or "\x00" in value for _, value in pairs):
        raise ApiError("bad_request", "A field of the form is too long, or no text.")
    return dict(pairs)
