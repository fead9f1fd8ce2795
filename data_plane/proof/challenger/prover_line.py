"""Starts the prover of a machine's agent and speaks with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from data_plane.access.line import Line
from data_plane.access.port import Session, StepFailed
from data_plane.inspection.agent import FIND_AGENT, agent_step, run_agent
from data_plane.inspection.bundle import AgentBundle

# A conversation, and so the longest step: about 20 s on a healthy machine, and the challenger gives up after a
# minute. Should we vanish without a word, the machine is rid of it after this.
PROVE = agent_step("prove", "prove", seconds=120)


@asynccontextmanager
async def prover_line(session: Session, agent: AgentBundle) -> AsyncIterator[Line]:
    """Start the agent's prover and speak with it; leaving ends it, whatever the machine does.

    Pushes the agent unless it is there. Entering raises Unreachable and StepFailed; from then on only what a Line
    raises comes from the machine. The prover ends by itself after `PROVE.seconds`.
    """
    found = await run_agent(session, FIND_AGENT, agent)
    if found.exit_status != 0:
        raise StepFailed(FIND_AGENT.name, found.exit_status, found.detail)
    async with session.converse(PROVE, [agent.sha256]) as line:
        yield line
