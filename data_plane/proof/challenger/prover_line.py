"""Starts the prover on a machine and opens a line to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from data_plane.access.line import Line
from data_plane.access.port import Session, StepFailed
from data_plane.inspection.agent import FIND_AGENT, agent_step, run_agent
from data_plane.inspection.bundle import Bundle

# The longest step, because it is a conversation: it takes about 20 s on a healthy machine, and the challenger gives up
# after a minute. If we disappear meanwhile, the machine ends the prover after this time.
PROVE = agent_step("prove", "prove", seconds=120)


@asynccontextmanager
async def prover_line(session: Session, agent: Bundle) -> AsyncIterator[Line]:
    """Start the agent's prover and open a line to it. Leaving ends the prover, whatever the machine does.

    Pushes the agent first if it is not on the machine. Entering raises Unreachable and StepFailed; after that, the line
    raises its own errors. The prover ends by itself after `PROVE.seconds`.
    """
    found = await run_agent(session, FIND_AGENT, agent)
    if found.exit_status != 0:
        raise StepFailed(FIND_AGENT.name, found.exit_status, found.detail)
    async with session.converse(PROVE, [agent.sha256]) as line:
        yield line
