"""Organizations on the screen."""

from rich.console import Group, RenderableType

from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import price
from control_plane.wire.organizations import OrganizationView


def organization_page(organization: OrganizationView, *, url: str, source: str) -> RenderableType:
    """`url` is the API's; `source` says where the API key comes from."""
    return Group(
        heading(organization.name, "suspended" if organization.suspended else ""),
        facts(
            ("Organization", organization.id),
            ("API", url),
            ("Key", source),
            ("GPUs", f"{organization.gpus_held} of {organization.gpu_quota} held"),
            ("Balance", f"{price(organization.balance)} USD"),
            ("On hold", f"{price(organization.held)} USD for running leases"),
            ("Available", f"{price(organization.available)} USD"),
        ),
    )
