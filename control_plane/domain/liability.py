"""Liabilities: what costs money at providers, serves nobody and has to go. Open until a provider shows the end."""

from datetime import datetime

from control_plane.domain.machine import MachineState


def why_open(state: MachineState, *, known: bool, terminate_asked_at: datetime | None, tries: int) -> str:
    """What keeps the liability of a machine open that no lease holds, as a sentence for operators.

    `known`: the provider's id of the machine is known. `tries` counts requests since its termination was decided.
    """
    if state is not MachineState.TERMINATING:
        return "No lease holds it any more; its termination is decided next."
    if not known:
        return "The answer to its launch was lost: it is looked for by its launch key."
    if terminate_asked_at is not None:
        return "The provider took the request to terminate it, and has not shown its end yet."
    if tries:
        return "The provider refused to terminate it: see the last report of terminate_machines in splitplane loops."
    return "Its termination is requested next."
