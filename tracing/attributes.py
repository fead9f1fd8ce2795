"""Everything that a span may say. What is not in this list cannot be recorded: `Span.set` takes nothing else.

Ids, codes and counts of ours belong here. Names that customers choose, request bodies, paths with ids, user data, keys
and texts of errors do not: traces go to a system with readers of its own.
"""

from enum import StrEnum


class Attribute(StrEnum):
    """Names follow OpenTelemetry's semantic conventions where these have one."""

    # A request to the API.
    METHOD = "http.request.method"
    ROUTE = "http.route"
    """The template, `/v1/leases/{lease_id}`."""
    STATUS = "http.response.status_code"
    REQUEST = "splitplane.request.id"
    OPERATION = "splitplane.operation.id"
    """As in the OpenAPI document, `createLease`."""
    ORGANIZATION = "splitplane.organization.id"
    REPLAYED = "splitplane.idempotency.replayed"

    # What a span is about.
    LEASE = "splitplane.lease.id"
    MACHINE = "splitplane.machine.id"
    ACCOUNT = "splitplane.provider.account"
    REGION = "cloud.region"
    """The provider's own name of it."""
    EVENT = "splitplane.event"
    """What happened to it, as in the journal."""

    # A loop's activation.
    LOOP = "splitplane.loop.name"
    REPLICA = "splitplane.loop.replica"
    LOOKED_AT = "splitplane.loop.looked_at"
    ACTED_ON = "splitplane.loop.acted_on"
    ERRORS = "splitplane.loop.errors"

    # A call of a provider.
    VERB = "splitplane.provider.verb"
    OUTCOME = "splitplane.outcome"
    """`ok`, or the code of what went wrong."""
    WAITED = "splitplane.provider.waited_seconds"
    """For the call's turn, before it was made."""

    ERROR = "error.type"
    """A class of ours or of Python, or an HTTP status. Never a message, which may quote what it is about."""
