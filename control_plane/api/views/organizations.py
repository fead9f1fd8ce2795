"""Organizations and their credits on the wire."""

from msgspec import structs

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.domain.permission import Role
from control_plane.services.organizations import Organization
from control_plane.wire.organizations import CreditView, OrganizationView, OwnOrganizationView


def organization_view(organization: Organization) -> OrganizationView:
    return OrganizationView(
        id=on_wire(Prefix.ORGANIZATION, organization.id),
        name=organization.name,
        state=organization.state.value,
        platform=organization.platform,
        gpu_quota=organization.gpu_quota,
        gpus_held=organization.gpus_held,
        balance=money(organization.posted_nano),
        held=money(organization.held_nano),
        available=money(Nano(organization.posted_nano - organization.held_nano)),
        created_at=organization.created_at,
    )


def own_organization_view(organization: Organization, *, key_id: str, role: Role) -> OwnOrganizationView:
    """The organization of the API key that asks."""
    view = organization_view(organization)
    return OwnOrganizationView(**structs.asdict(view), key_id=key_id, role=role.value)


def credit_view(organization: Organization, amount: Nano) -> CreditView:
    """A credit of `amount`, with the balance of the organization after it."""
    organization_id = on_wire(Prefix.ORGANIZATION, organization.id)
    return CreditView(organization_id, money(amount), money(organization.posted_nano))
