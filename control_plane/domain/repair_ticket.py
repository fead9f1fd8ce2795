"""What the provider of a machine is told about its faults: a text that can be sent as it is.

It names the machine by the provider's own id, and has the evidence with its times: what was found, by whom, and what we
did about it. It names no customer.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from control_plane.domain.health import RULES, Fault, Source, Verdict

WIDTH = 78
"""Characters of a line, unless a word is longer."""


@dataclass(frozen=True, slots=True)
class Known:
    """The faults of a machine at a moment."""

    at: datetime
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that we did."""

    at: datetime
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A machine that is not healthy, for its provider."""

    repair: str
    """Our id of the repair."""
    provider: str
    account: str
    region: str
    """As its provider names it."""
    native_type: str
    reference: str | None
    """The provider's id of the machine; None when it never told us one."""
    gpu_count: int
    gpu_uuids: Sequence[str]
    """In the order of their indices; empty when they were never read."""
    opened_at: datetime
    closed_at: datetime | None
    verdict: Verdict
    """What it was opened with."""
    why: str
    faults: Sequence[Fault]
    """The oldest first."""
    done: Sequence[Done]

    @property
    def since(self) -> datetime:
        """When the first of its faults was reported."""
        return min((fault.first_at for fault in self.faults), default=self.opened_at)

    def uuid_of(self, gpu: int | None) -> str | None:
        return self.gpu_uuids[gpu] if gpu is not None and 0 <= gpu < len(self.gpu_uuids) else None


def faults_of(known: Iterable[Known]) -> list[Fault]:
    """Every fault that was open at some of these moments, with all that was known of it; the oldest first."""
    found: dict[tuple[object, ...], Fault] = {}
    for moment in sorted(known, key=lambda each: each.at):
        for fault in moment.faults:
            key = (*fault.key, fault.first_at)
            earlier = found.get(key, fault)
            confirmed = min(
                (at for at in (earlier.confirmed_at, fault.confirmed_at) if at is not None), default=None
            )
            found[key] = replace(fault, last_at=max(earlier.last_at, fault.last_at), confirmed_at=confirmed)
    return sorted(found.values(), key=lambda fault: (fault.first_at, fault.code, fault.gpu or 0))


def text_of(ticket: Ticket) -> str:
    """The text, in lines of at most `WIDTH` characters."""
    return "\n".join(_lines(ticket)) + "\n"


def _lines(ticket: Ticket) -> Iterator[str]:
    machine = "A machine of ours" if ticket.reference is None else f"Machine {ticket.reference}"
    verb = "is" if ticket.closed_at is None else "was"
    yield from _wrapped(f"{machine} {verb} not healthy ({_spaced(ticket.verdict)}): {_sentence(ticket.why)}")
    yield ""
    for label, value in (
        ("Provider", ticket.provider),
        ("Account", ticket.account),
        ("Region", ticket.region),
        ("Instance", ticket.reference or "you have not told us its id"),
        ("Type", f"{ticket.native_type}, {_gpus(ticket.gpu_count)}"),
        ("Since", f"{_at(ticket.since)} UTC"),
        ("Our id", ticket.repair),
        ("Opened", f"{_at(ticket.opened_at)} UTC"),
        ("Closed", None if ticket.closed_at is None else f"{_at(ticket.closed_at)} UTC"),
    ):
        if value is not None:
            yield from _wrapped(value, first=f"{label:<12}", rest=" " * 12)
    yield from ("", "What was found (times are UTC)")
    for fault in ticket.faults:
        yield from _wrapped(f"{_at(fault.first_at)}  {_found(ticket, fault)}", first="- ", rest="  ")
    if not ticket.faults:
        yield "- nothing beyond the above"
    yield from ("", "What we did")
    for done in ticket.done:
        yield from _wrapped(f"{_at(done.at)}  {_sentence(done.what)}", first="- ", rest="  ")
    if not ticket.done:
        yield "- nothing yet"
    if ticket.gpu_uuids:
        yield from ("", "GPUs")
        yield from (f"- {index}: {uuid}" for index, uuid in enumerate(ticket.gpu_uuids))


_SOURCES = {
    Source.SAMPLE: "the agent on the machine",
    Source.LOOK: "our reading over SSH",
    Source.PROOF: "our GPU test",
    Source.PROVIDER: "your lists",
    Source.OPERATOR: "our operators or its user",
}


def _found(ticket: Ticket, fault: Fault) -> str:
    card = [] if fault.gpu is None or f"GPU {fault.gpu} " in fault.detail else [f"GPU {fault.gpu}"]
    uuid = ticket.uuid_of(fault.gpu)
    which = ", ".join([*card, *([] if uuid is None else [uuid])])
    if fault.gpu is None and fault.xid is None:
        words = f"{RULES[fault.code].words}: {fault.detail}"
    else:
        words = f"{fault.detail}{f' ({which})' if which else ''}: {RULES[fault.code].words}"
    last = "" if fault.last_at == fault.first_at else f", last {_at(fault.last_at)}"
    ours = ", not confirmed by us" if fault.confirmed_at is None else f", confirmed {_at(fault.confirmed_at)}"
    if fault.confirmed_at == fault.first_at:
        ours = ""
    return f"{_sentence(words)} By {_SOURCES[fault.source]}{last}{ours}."


def _wrapped(text: str, *, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _at(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count or 'no'} GPUs"


def _spaced(word: str) -> str:
    return word.replace("_", " ")


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."
