"""Errors: RFC 9457 problem details."""

from control_plane.wire.common import View
from control_plane.wire.vocabulary import LevelWord, StageWord


class FieldError(View):
    """One fault of a request."""

    field: str
    """The field of the body such as `regions[0]`, a query parameter, or `body`."""
    detail: str
    """What is wrong with it: the end of a sentence that begins with the field."""


class RefusalView(View):
    """One of several reasons for a refusal."""

    stage: StageWord
    """The stage of admission that it is from."""
    code: str
    """The stable code, for programs."""
    detail: str
    """What to change, as a sentence."""
    level: LevelWord | None
    """The level of the envelope that refuses; null for other rules."""


class Problem(View, omit_defaults=True):
    """RFC 9457 problem details. `code` never changes its meaning; docs/errors.md lists every code."""

    type: str
    """The code as a URN: `urn:splitplane:error:` and the code."""
    title: str
    """The phrase of the HTTP status."""
    status: int
    """The HTTP status."""
    detail: str
    """What happened, and what to change, as a sentence."""
    code: str
    """The stable code, for programs."""
    request_id: str
    """Finds the request in our logs; also in the header `X-Request-Id`."""
    errors: tuple[FieldError, ...] = ()
    """The fields or parameters at fault, where there are any."""
    permission: str | None = None
    """The permission that the API key lacks, such as `loops.read`; only with the code `permission_denied`."""
    refusals: tuple[RefusalView, ...] = ()
    """Everything that refuses an action, the first one included; only where several rules decide."""
