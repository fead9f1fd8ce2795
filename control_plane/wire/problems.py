"""Errors: RFC 9457 problem details."""

from control_plane.wire.common import View


class FieldError(View):
    field: str
    """The field of the body such as `regions[0]`, a query parameter, or `body`."""
    detail: str


class Problem(View, omit_defaults=True):
    """RFC 9457 problem details. `code` never changes its meaning; docs/errors.md lists every code."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: tuple[FieldError, ...] = ()
    permission: str | None = None
    """The permission that the API key lacks, such as `loops.read`; only with the code `permission_denied`."""
