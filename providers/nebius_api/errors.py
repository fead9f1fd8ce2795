"""What Nebius's failures mean: those of calls, and those of operations that a call began."""

from collections.abc import Iterable

from google.protobuf.any_pb2 import Any as AnyMessage

from providers.base import Verb
from providers.error_law import ErrorDetail, Failure, Meaning, Rule, error_of, rules_by_code
from providers.listings import UnreadableAnswer
from providers.nebius_api import messages_pb2 as pb
from providers.rpc import CallFailedError, ErrorContract, readable

_SERVICE_ERROR = "/nebius.common.v1.ServiceError"
_STATUS_NAMES = {
    1: "CANCELLED",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    13: "INTERNAL",
}
"""gRPC's numbers of the status codes that an operation may end with."""


def raise_failure(verb: Verb, operation: pb.Operation) -> None:
    """Raise the error that a finished operation ended with. One that goes on is accepted."""
    if not operation.id:
        raise UnreadableAnswer("an operation without an id")
    code = failure_code(operation)
    if code is not None:
        raise error_of(verb, Failure(None, ErrorDetail(code, operation.status.message)), RULES)


def failure_code(operation: pb.Operation) -> str | None:
    """The code of a failed operation, such as `RESOURCE_EXHAUSTED/not_enough_resources`; None unless it failed."""
    status = operation.status
    if not (operation.HasField("status") and status.code):
        return None
    return f"{_STATUS_NAMES.get(status.code, status.code)}/{_kind_of(status.details)}"


def _detail(failed: CallFailedError) -> ErrorDetail:
    """The code is `STATUS/kind`, such as `RESOURCE_EXHAUSTED/quota_failure`."""
    status = readable(pb.Status, failed.details) or pb.Status()
    return ErrorDetail(f"{failed.status}/{_kind_of(status.details)}", failed.message)


def _kind_of(details: Iterable[AnyMessage]) -> str:
    """Which kind of `ServiceError` the details of a status hold; empty for none."""
    found = next((each.value for each in details if each.type_url.endswith(_SERVICE_ERROR)), b"")
    error = readable(pb.ServiceError, found)
    return (error.WhichOneof("details") or "") if error is not None else ""


NOT_ENOUGH_RESOURCES = "RESOURCE_EXHAUSTED/not_enough_resources"
RULES = (
    # dstack saw it with other codes, too.
    Rule(Meaning.QUOTA_REACHED, text="quota limit exceeded", verb=Verb.LAUNCH),
    *rules_by_code(
        {
            NOT_ENOUGH_RESOURCES: Meaning.NO_CAPACITY,
            "RESOURCE_EXHAUSTED/quota_failure": Meaning.QUOTA_REACHED,
            "RESOURCE_EXHAUSTED/too_many_requests": Meaning.THROTTLED,
            "UNAUTHENTICATED/*": Meaning.UNAUTHORIZED,
            "PERMISSION_DENIED/*": Meaning.UNAUTHORIZED,
            "NOT_FOUND/*": Meaning.NOT_FOUND,
            "INVALID_ARGUMENT/*": Meaning.REFUSED,
            "OUT_OF_RANGE/*": Meaning.REFUSED,
        }
    ),
    # Another operation on it is under way, or another replica was faster.
    *(
        Rule(Meaning.BUSY, code=f"{status}/*", verb=verb)
        for verb in (Verb.TERMINATE, Verb.PREPARE, Verb.POWER)
        for status in ("ABORTED", "ALREADY_EXISTS", "FAILED_PRECONDITION")
    ),
    Rule(Meaning.REFUSED, code="FAILED_PRECONDITION/*", verb=Verb.LAUNCH),
)
ERRORS = ErrorContract(_detail, RULES)
EXCHANGE_ERRORS = ErrorContract(
    _detail,
    (
        *rules_by_code({"INVALID_ARGUMENT/*": Meaning.UNAUTHORIZED, "NOT_FOUND/*": Meaning.UNAUTHORIZED}),
        *RULES,
    ),
)
"""For the exchange of the assertion: one that is refused is a key that is not valid."""
