"""What operators asked for concerning provider accounts, as the wire shows it."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.account_requests import RecordedRequest
from control_plane.wire.account_requests import AccountRequestView


def account_request_view(request: RecordedRequest) -> AccountRequestView:
    return AccountRequestView(
        id=on_wire(Prefix.ACCOUNT_REQUEST, request.id),
        account=request.account,
        verb=request.verb,
        why=request.why,
        actor=request.actor,
        asked_at=request.asked_at,
        outcome=request.outcome,
        code=request.code,
        said=request.said,
        finished_at=request.finished_at,
    )
