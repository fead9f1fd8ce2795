"""Whether the API process is up and can serve."""

from control_plane.wire.common import View


class Health(View):
    status: str
    """`up` or `ready`."""
