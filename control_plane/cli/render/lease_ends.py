"""A lease that an operator ended, on the screen."""

from datetime import datetime

from rich.console import RenderableType

from control_plane.cli.render.layout import facts
from control_plane.cli.words import both
from control_plane.wire.lease_ends import LeaseEndView


def lease_end_page(lease: LeaseEndView, now: datetime) -> RenderableType:
    return facts(
        ("Lease", f"{lease.name}  {lease.id}"),
        ("State", lease.state),
        ("Reason", lease.end_why),
        ("Billed until", both(lease.billed_until, now) or "it was never billed"),
        ("Ended", both(lease.ended_at, now)),
    )
