"""Runs the agent on a machine and reads the document that it prints."""

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Answer, Step
from data_plane.documents import protocol, strict
from data_plane.inspection.bundle import Bundle

MISSING = 75
"""The exit status of the agent's steps when no agent with this digest is on the machine: EX_TEMPFAIL, which Python
itself never uses."""

# Runs as the login user: NVML needs no privileges, and the customer must not be able to change the file. The digest
# protects against a broken push or disk. A customer with root can fake any answer, so callers must check it.
_FIND_AGENT = f"""set -eu
agent="$HOME/.splitplane/agent-$1.pyz"
[ -f "$agent" ] || exit {MISSING}
[ "$(sha256sum < "$agent" | cut -c 1-64)" = "$1" ] || exit {MISSING}
"""
FIND_AGENT = Step("find agent", _FIND_AGENT, seconds=10, user="login")
PUSH_AGENT = Step(
    "push agent",
    """set -eu
umask 077
mkdir -p "$HOME/.splitplane"
new=$(mktemp "$HOME/.splitplane/new.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
[ "$(sha256sum < "$new" | cut -c 1-64)" = "$1" ] || { echo 'what arrived has another digest' >&2; exit 65; }
mv -f "$new" "$HOME/.splitplane/agent-$1.pyz"
""",
    seconds=20,
    user="login",
)


def agent_step(name: str, command: str, seconds: int) -> Step:
    """A step that runs the agent with this command. Its argument is the agent's digest.

    The step exits with MISSING, and does nothing, if no agent with that digest is on the machine.
    """
    script = f'{_FIND_AGENT}exec python3 -I "$agent" {command}\n'
    return Step(name, script, seconds, user="login")


async def run_agent(session: Session, step: Step, agent: Bundle) -> Answer:
    """Run a step of the agent, and push the agent first if it is not on the machine.

    Raises Unreachable and StepFailed.
    """
    answer = await session.run(step, [agent.sha256])
    if answer.exit_status != MISSING:
        return answer
    await must(session, PUSH_AGENT, [agent.sha256], stdin=agent.content)
    return await session.run(step, [agent.sha256])


def document(step: Step, answer: Answer) -> protocol.Message:
    """The document that the agent printed. Raises StepFailed if there is none, or if it says that the agent failed.

    The exit status is checked last, because a failure document says more.
    """
    try:
        message = protocol.decode(answer.output)
    except strict.Malformed as error:
        if answer.exit_status != 0:
            raise StepFailed(step.name, answer.exit_status, answer.detail) from None
        raise StepFailed(step.name, None, f"the agent's answer is malformed: {error}") from None
    if isinstance(message, protocol.Failure):
        raise StepFailed(step.name, answer.exit_status, f"{message.code}: {message.detail}")
    if answer.exit_status != 0:
        raise StepFailed(step.name, answer.exit_status, answer.detail)
    return message
