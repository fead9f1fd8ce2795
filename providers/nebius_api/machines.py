"""Machines as Nebius lists them: the words of their states, and what a page of them says."""

from providers.base import ListedState, Page, Sighting
from providers.listings import LAUNCH_KEY_TAG, ours, sighting
from providers.nebius_api import messages_pb2 as pb

_WORDS = {
    "CREATING": ListedState.PROVISIONING,
    "UPDATING": ListedState.PROVISIONING,
    "STARTING": ListedState.PROVISIONING,
    "RUNNING": ListedState.RUNNING,
    "STOPPING": ListedState.STOPPED,
    "STOPPED": ListedState.STOPPED,
    "DELETING": ListedState.ENDING,
    "ERROR": ListedState.FAILED,
}
STATES = (
    _WORDS
    | {f"{word}/reconciling": state for word, state in _WORDS.items()}
    | {"STOPPED/reconciling": ListedState.PROVISIONING}
)


def page_of(listed: pb.ListInstancesResponse) -> Page[Sighting]:
    found = ours(_sighting(each) for each in listed.items)
    return Page(found, listed.next_page_token or None, listed=len(listed.items))


def _sighting(instance: pb.Instance) -> Sighting | None:
    metadata, status, size = instance.metadata, instance.status, instance.spec.resources
    addresses = [each.public_ip_address.address for each in status.network_interfaces]
    return sighting(
        metadata.id,
        (metadata.labels.get(LAUNCH_KEY_TAG), metadata.name),
        _word(status),
        STATES,
        address=next(filter(None, addresses), None),
        native_type=f"{size.platform}/{size.preset}" if size.preset else None,
    )


def _word(status: pb.InstanceStatus) -> str:
    """The state's name, or its number where we have no name for it, and whether an operation is under way."""
    known = pb.InstanceStatus.InstanceState.values()
    number = status.state
    word = pb.InstanceStatus.InstanceState.Name(number) if number in known else str(number)
    return f"{word}/reconciling" if status.reconciling else word
