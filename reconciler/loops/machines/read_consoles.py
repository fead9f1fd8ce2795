"""Reads the consoles that customers ask for: at the provider, and where it has nothing, in the machine's own journal.

The API stores requests, because it reaches neither providers nor machines; PostgreSQL's notification of one wakes this
loop, as somebody waits. Reading changes nothing, so a worker that dies is followed by another one. A provider that gets
a console first says so with a ticket, which is stored, and is asked again with it. What was read is made safe before it
is stored (`control_plane/domain/console.py`), and appears in no report and no log.
"""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from control_plane.db import consoles
from control_plane.db.consoles import REQUESTS, Due
from control_plane.domain.console import (
    FETCHED_WITHIN,
    NO_MACHINE,
    ConsoleSource,
    Finding,
    MachineAnswer,
    Printed,
    ProviderAnswer,
    printed,
)
from control_plane.domain.ids import AccountName
from data_plane.access.port import AccessError, StepFailed, Target
from data_plane.inspection.boot_journal import read_boot_journal
from providers.base import MachineNotFound, ProviderError
from providers.optional import ConsoleTicket, HasConsole
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "read_consoles"
CONSOLES_PER_ACTIVATION_MAX = 16
LANES = 4
"""Several, because a machine that does not answer takes as long as a login may."""
HELD_FOR = timedelta(seconds=120)
"""Longer than the provider's call with its turns, a login and the step may take together."""
FETCHED_AGAIN_AFTER = timedelta(seconds=2)
_NOTHING = Printed((), is_cut=False)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await consoles.take(
            connection,
            account,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=CONSOLES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due), more=len(due) == CONSOLES_PER_ACTIVATION_MAX)
    await each(due, partial(_attend, world, account, token, report), report)
    return report


@dataclass(frozen=True, slots=True)
class _Said:
    """What the provider said, and the ticket with which it wants to be asked again."""

    answer: ProviderAnswer
    printed: Printed = _NOTHING
    ticket: str | None = None


async def _attend(world: MachineWorld, account: AccountName, token: UUID, report: Report, due: Due) -> None:
    if due.is_over:
        await _answer(world, due, NO_MACHINE, token, report)
        return
    said = await _ask_provider(world, account, due, report)
    if said.ticket is not None:
        async with world.db.statement() as connection:
            await consoles.wait(
                connection, due.id, said.ticket, token=token, now=world.now(), after=FETCHED_AGAIN_AFTER
            )
        return
    if said.answer is ProviderAnswer.READ:
        finding = Finding(ConsoleSource.PROVIDER, said.answer, MachineAnswer.NOT_ASKED, said.printed)
    else:
        finding = await _ask_machine(world, due, said.answer, report)
    await _answer(world, due, finding, token, report)


async def _ask_provider(world: MachineWorld, account: AccountName, due: Due, report: Report) -> _Said:
    provider = world.accounts[account]
    if due.provider_ref is None:
        return _Said(ProviderAnswer.NOT_ASKED)
    if not provider.capabilities.console or not isinstance(provider, HasConsole):
        return _Said(ProviderAnswer.NOT_OFFERED)
    try:
        found = await provider.console(due.provider_ref, due.ticket)
    except MachineNotFound:
        return _Said(ProviderAnswer.UNKNOWN_MACHINE)
    except ProviderError as error:
        report.notes.append(f"{due.launch_key}: {type(error).__name__}: {error}")
        return _Said(ProviderAnswer.FAILED)
    if isinstance(found, ConsoleTicket):
        late = world.now() >= due.requested_at + FETCHED_WITHIN
        return _Said(ProviderAnswer.TOO_SLOW, ticket=None if late else found.value)
    shown = printed(found)
    return _Said(ProviderAnswer.READ if shown.lines else ProviderAnswer.EMPTY, shown)


async def _ask_machine(world: MachineWorld, due: Due, said: ProviderAnswer, report: Report) -> Finding:
    answer, shown = await _journal(world, due, report)
    source = ConsoleSource.MACHINE if answer is MachineAnswer.READ else ConsoleSource.STEPS
    return Finding(source, said, answer, shown)


async def _journal(world: MachineWorld, due: Due, report: Report) -> tuple[MachineAnswer, Printed]:
    if due.address is None or due.host_key is None:
        return MachineAnswer.NO_ADDRESS, _NOTHING
    target = Target(due.address, due.ssh_port, due.host_key, due.launch_key)
    try:
        async with world.access.connect(target) as session:
            shown = printed(await read_boot_journal(session))
    except AccessError as error:
        # Without its text, which may quote what the machine printed.
        report.notes.append(f"{due.launch_key}: {type(error).__name__}")
        failed = isinstance(error, StepFailed)
        return MachineAnswer.FAILED if failed else MachineAnswer.UNREACHABLE, _NOTHING
    return (MachineAnswer.READ if shown.lines else MachineAnswer.FAILED), shown


async def _answer(world: MachineWorld, due: Due, finding: Finding, token: UUID, report: Report) -> None:
    async with world.db.statement() as connection:
        stored = await consoles.answer(connection, due.id, finding, token=token, now=world.now())
    report.count(int(stored))


LOOP = AccountLoop(NAME, timedelta(seconds=5), activate, lasts=HELD_FOR, lanes=LANES, hears=(REQUESTS,))
