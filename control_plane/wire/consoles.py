"""The console of a lease's machine: what it printed, and the steps that we recorded."""

from typing import Annotated

from control_plane.wire.common import Timestamp, View
from control_plane.wire.journal import JournalLine
from control_plane.wire.vocabulary import ConsoleIdText, LeaseIdText, one_of

ConsoleStateWord = Annotated[
    str,
    one_of(
        "ConsoleState",
        "Where a request for a console is.",
        wanted="It was requested, and is read in a moment.",
        read="It was read; `source` tells what was found.",
    ),
]
ConsoleSourceWord = Annotated[
    str,
    one_of(
        "ConsoleSource",
        "Where the lines are from.",
        provider="From the provider: what the machine printed on its console.",
        machine="From the machine: the journal of its last boot.",
        steps="There are none. `steps` is what we recorded ourselves; `provider` and `machine` tell why.",
    ),
]
ProviderAnswerWord = Annotated[
    str,
    one_of(
        "ProviderAnswer",
        "What came of asking the provider for the console.",
        read="It had the lines.",
        not_asked="There was no machine yet, or none any more.",
        not_offered="This provider shows consoles to nobody but people, or to nobody.",
        empty="The machine has printed nothing that the provider keeps.",
        unknown_machine="The provider knows no such machine.",
        too_slow="The provider did not have it within half a minute.",
        failed="The provider did not answer, or refused.",
    ),
]
MachineAnswerWord = Annotated[
    str,
    one_of(
        "MachineAnswer",
        "What came of asking the machine itself, which is done where the provider has nothing.",
        read="It had the lines.",
        not_asked="The provider had the lines, or there is no machine.",
        no_address="The machine has no address yet.",
        unreachable="The machine did not answer over SSH, or did not let us in.",
        failed="The machine was reached, and its journal could not be read.",
    ),
]


class ConsoleView(View):
    """A request to read the console of a lease's machine, and what was found. It can be read for ten minutes."""

    id: ConsoleIdText
    """The id of the request."""
    lease_id: LeaseIdText
    """The lease."""
    state: ConsoleStateWord
    """Where it is. A new one is `wanted`; ask for it again until it is not."""
    requested_at: Timestamp
    """When it was requested."""
    answered_at: Timestamp | None
    """When it was read; null before that."""
    source: ConsoleSourceWord | None
    """Where the lines are from; null until it was read."""
    provider: ProviderAnswerWord | None
    """What came of asking the provider; null until it was read."""
    machine: MachineAnswerWord | None
    """What came of asking the machine itself; null until it was read."""
    lines: tuple[str, ...]
    """What the machine printed, oldest line first; 64 KiB at most, of which the end is kept. A machine prints what it
    likes: nothing here is checked. Control characters are removed, and private keys are blanked."""
    is_cut: bool
    """Whether there were more lines before the first one."""
    steps: tuple[JournalLine, ...]
    """What we recorded of the lease and its machines, oldest first: the latest 200 lines of its journal. Empty in the
    answer to the request itself."""
