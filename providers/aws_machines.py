"""What AWS's answers say about machines. See the traps in `aws.py`."""

from collections.abc import Mapping
from typing import Any

from control_plane.domain.ids import ProviderRef
from providers.aws_client import tags
from providers.base import ListedState, Page, Sighting, Verb
from providers.error_law import Meaning, error_for
from providers.listings import LAUNCH_KEY_TAG, UnreadableAnswer, ours, reference_of, sighting

STATES = {
    "pending": ListedState.PROVISIONING,
    "running": ListedState.RUNNING,
    "stopping": ListedState.STOPPED,
    "stopped": ListedState.STOPPED,
    "shutting-down": ListedState.ENDING,
    "terminated": ListedState.GONE,
}
"""A stopped machine costs its root volume. A stop empties its local disks."""
_BY_AWS = "Server."
"""How the reasons of a state begin that AWS caused, such as `Server.ScheduledStop`. The reason is
`Client.InstanceInitiatedShutdown` for a shutdown from inside (API reference of EC2, StateReason)."""


def machines(region: str, answer: Mapping[str, Any]) -> tuple[Page[Sighting], bool]:
    """A page of machines, and whether one of them is spot."""
    listed = [each for reservation in answer["Reservations"] for each in reservation["Instances"]]
    found = ours(_sighting(region, each) for each in listed)
    any_spot = any(each.get("InstanceLifecycle") == "spot" for each in listed)
    return Page(found, answer.get("NextToken") or None, listed=len(listed)), any_spot


def _sighting(region: str, machine: Mapping[str, Any]) -> Sighting | None:
    named = tags(machine.get("Tags", ()))
    status, states = machine["State"]["Name"], STATES
    reason = (machine.get("StateReason") or {}).get("Code") or ""
    if STATES.get(status) is ListedState.STOPPED and reason.startswith(_BY_AWS):
        status = f"{status}/{reason}"
        states = {**STATES, status: ListedState.STOPPED_BY_PROVIDER}
    marks = (machine.get("ClientToken"), named.get(LAUNCH_KEY_TAG), named.get("Name"))
    return sighting(
        reference(region, machine),
        marks,
        status,
        states,
        address=machine.get("PublicIpAddress"),
        native_type=machine.get("InstanceType"),
    )


def reference(region: str, machine: Mapping[str, Any]) -> ProviderRef:
    """A machine can only be ended in its region, so that is a part of its reference."""
    return reference_of(f"{region}/{machine['InstanceId']}")


def only_id(region: str, answer: Mapping[str, Any]) -> ProviderRef:
    machines = answer["Instances"]
    if len(machines) != 1:
        raise UnreadableAnswer(f"{len(machines)} instances for one machine")
    return reference(region, machines[0])


def ended(instance: str, answer: Mapping[str, Any]) -> None:
    """Raises MachineNotFound for a machine that was terminated before: to do so again changes nothing, and succeeds."""
    ending = {each["InstanceId"]: each["PreviousState"]["Name"] for each in answer["TerminatingInstances"]}
    if instance not in ending:
        raise UnreadableAnswer("the answer is about another machine")
    if ending[instance] == "terminated":
        raise error_for(Verb.TERMINATE, Meaning.NOT_FOUND, "it was terminated before")
