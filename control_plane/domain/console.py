r"""The console of a lease's machine: a request to read it, and what was found.

    wanted --> read

The API stores a request, because it reaches neither providers nor machines. The reconciler asks the provider, and where
that has nothing, reads the machine's own journal. The lines come from a machine that belongs to somebody else: they are
bounded, hold no control characters, and blocks that look like private keys are blanked before anything is stored.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import ConsoleId, LeaseId, OrganizationId
from control_plane.domain.lease import LeaseState
from control_plane.domain.refusal import RefusalCode, Refused

KEPT = timedelta(minutes=10)
"""How long an answer can be read. It is deleted afterwards, as is a request that nobody answered."""
RECENT = timedelta(minutes=1)
RECENT_MAX = 3
"""Requests for one lease within RECENT: each is a call of a provider that every customer shares."""
FETCHED_WITHIN = timedelta(seconds=30)
"""How long we wait for a provider that gets a console first, before the machine is asked instead."""
BYTES_MAX = 64 * 1024
"""Of the lines, in UTF-8; the end is kept."""
RAW_CHARACTERS_MAX = 8 * BYTES_MAX
"""Of what is looked at. There is more of it, because escape sequences and keys are taken out."""
KEY_LINES_MAX = 250
"""How many lines a private key may have. One of 16,384 bits has 200."""
BLANKED = "[a private key, which is not shown]"


class ConsoleState(StrEnum):
    WANTED = "wanted"
    READ = "read"


class ConsoleSource(StrEnum):
    """Where the lines are from."""

    PROVIDER = "provider"
    """What the machine printed on its console, as its provider has it."""
    MACHINE = "machine"
    """The journal of the machine's last boot, which we read there."""
    STEPS = "steps"
    """There are none: only our own record of the steps."""


class ProviderAnswer(StrEnum):
    """What came of asking the provider for the console."""

    READ = "read"
    NOT_ASKED = "not_asked"
    """There is no machine yet, or none any more."""
    NOT_OFFERED = "not_offered"
    """The provider shows no console to programs."""
    EMPTY = "empty"
    UNKNOWN_MACHINE = "unknown_machine"
    TOO_SLOW = "too_slow"
    """It did not have the console within FETCHED_WITHIN."""
    FAILED = "failed"


class MachineAnswer(StrEnum):
    """What came of asking the machine itself."""

    READ = "read"
    NOT_ASKED = "not_asked"
    """The provider had the console, or there is no machine."""
    NO_ADDRESS = "no_address"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    """It was reached, and its journal could not be read."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Lines that are safe to store and to show."""

    lines: tuple[str, ...]
    is_cut: bool
    """Whether there were more before them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to a request."""

    source: ConsoleSource
    provider: ProviderAnswer
    machine: MachineAnswer
    printed: Printed = Printed((), is_cut=False)


NO_MACHINE = Finding(ConsoleSource.STEPS, ProviderAnswer.NOT_ASKED, MachineAnswer.NOT_ASKED)


@dataclass(frozen=True, slots=True)
class Console:
    """A request, from the moment it is stored."""

    id: ConsoleId
    organization_id: OrganizationId
    lease_id: LeaseId
    requested_at: datetime
    answered_at: datetime | None = None
    finding: Finding | None = None

    @property
    def state(self) -> ConsoleState:
        return ConsoleState.WANTED if self.finding is None else ConsoleState.READ


def refusal(state: LeaseState, recent: int) -> Refused | None:
    """Why no request is stored for a lease in this state with so many recent ones; None when one is."""
    if state in (LeaseState.ENDING, LeaseState.ENDED):
        why = "The lease has ended, and so has its machine; `splitplane why` shows what was recorded of it."
        return Refused(RefusalCode.STATE_CONFLICT, why)
    if recent >= RECENT_MAX:
        why = f"The console of this lease was asked for {recent} times within a minute; wait a minute."
        return Refused(RefusalCode.CONSOLES_TOO_MANY, why)
    return None


_ESCAPES = re.compile(
    r"""(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]           # CSI: colours, movements
      | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?  # strings: titles and the like
      | \x1b[ -/]*[0-~]                            # two or three characters: character sets, resets
    """,
    re.VERBOSE,
)
_LINE_ENDS = re.compile(r"\r*\n|\r")
_TABULATOR = 8
_KEY_BEGINS = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File-", re.IGNORECASE)
_KEY_ENDS = re.compile(r"-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY|Private-MAC:", re.IGNORECASE)


def printed(raw: str) -> Printed:
    """The end of what a machine printed, as lines that hold no control characters and no private key.

    Escape sequences are removed; any other character that cannot be printed becomes U+FFFD.
    """
    text = _ESCAPES.sub("", raw[-RAW_CHARACTERS_MAX:])
    lines = [_plain(line) for line in _LINE_ENDS.split(text)]
    while lines and not lines[-1].strip():
        lines.pop()
    ours = _end_of(_without_keys(lines))
    is_cut = len(raw) > RAW_CHARACTERS_MAX or ours.is_cut
    return Printed(ours.lines, is_cut)


def _plain(line: str) -> str:
    expanded = line.expandtabs(_TABULATOR).rstrip()
    if expanded.isprintable():
        return expanded
    return "".join(each if each.isprintable() else "\ufffd" for each in expanded)


def _without_keys(lines: Iterable[str]) -> list[str]:
    """Every line of a private key becomes BLANKED, once for each key. Either end of one may be missing."""
    shown: list[str] = []
    inside = 0
    for line in lines:
        begins, ends = _KEY_BEGINS.search(line), _KEY_ENDS.search(line)
        if ends and not begins and not inside:
            del shown[-KEY_LINES_MAX:]  # Its beginning was lost, as it was printed long ago.
            shown.append(BLANKED)
        elif begins:
            shown.append(BLANKED)
            inside = KEY_LINES_MAX
        elif inside:
            inside -= 1
        else:
            shown.append(line)
        if ends and not (begins and begins.start() > ends.start()):
            inside = 0
    return shown


def _end_of(lines: list[str]) -> Printed:
    """The last lines that fit into BYTES_MAX with an end of line each; of a longer line, its end."""
    left, kept = BYTES_MAX, 0
    for line in reversed(lines):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept += 1
    if kept == 0 and lines:
        return Printed((lines[-1].encode()[-(BYTES_MAX - 1) :].decode(errors="ignore"),), is_cut=True)
    return Printed(tuple(lines[len(lines) - kept :]), is_cut=kept < len(lines))
