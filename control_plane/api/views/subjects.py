"""Users and service accounts on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.service_account import ServiceAccount
from control_plane.domain.user import User
from control_plane.wire.subjects import ServiceAccountView, UserView


def user_view(user: User) -> UserView:
    return UserView(
        id=on_wire(Prefix.USER, user.id),
        email=user.email,
        name=user.name,
        state=user.state.value,
        created_at=user.created_at,
    )


def service_account_view(account: ServiceAccount) -> ServiceAccountView:
    return ServiceAccountView(
        id=on_wire(Prefix.SERVICE_ACCOUNT, account.id),
        name=account.name,
        state=account.state.value,
        created_at=account.created_at,
    )
