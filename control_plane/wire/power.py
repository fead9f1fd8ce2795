"""The power of a lease's machine: whether it is on, and what can be done with it."""

from typing import Annotated

from control_plane.wire.common import Money, Timestamp, View
from control_plane.wire.vocabulary import one_of

PowerActionWord = Annotated[
    str,
    one_of(
        "PowerAction",
        "What can be done with the power of a machine.",
        reboot="It boots again, with everything on its disk.",
        stop="It is switched off and keeps its disk.",
        start="It boots after a stop. Its public address may be another one.",
    ),
]
PowerStateWord = Annotated[
    str,
    one_of(
        "PowerState",
        "Whether a machine is on.",
        on="It is on.",
        rebooting="Its reboot was asked for, and it has not answered since.",
        stopping="Its stop was asked for, and the provider does not list it as stopped yet.",
        off="The provider lists it as stopped.",
        starting="Its start was asked for, and it has not answered since.",
    ),
]


class PowerView(View):
    """Whether the lease's machine is on, and what its customer asked for last."""

    state: PowerStateWord
    """Whether it is on, or what is being done."""
    since: Timestamp | None
    """Since when: the request while it is open, and otherwise when it came out; null before the first one."""
    why: str | None
    """Why the last request failed, as a sentence; null when it did not."""
    actions: tuple[PowerActionWord, ...]
    """What the provider of the machine can do."""
    price_per_hour_stopped: Money | None = None
    """What the lease costs while its machine is stopped; null when it cannot be stopped, and before it is ready.

    It applies from the first list of the provider that shows the machine as stopped, until one shows it running again.
    """
