"""Whether the API process is up and can serve."""

from control_plane.wire.common import View
from control_plane.wire.vocabulary import HealthWord


class Health(View):
    """The health of the process."""

    status: HealthWord
    """`up` or `ready`."""
