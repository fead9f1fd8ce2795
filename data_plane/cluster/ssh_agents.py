"""`agents.Agents` over SSH.

What can go wrong, and what happens then:

  - the connection breaks while files are sent, or that takes longer than a turn: the next try continues them;
  - the disk is full, or a file has another digest: the step fails with the machine's own words, and nothing is started;
  - a step is interrupted: the next one does what is missing, and leaves what is done;
  - the agent does not join: the step fails with its last log lines, without the token, and the next try begins there;
  - cleaning cannot remove something: it is named in what is left.
"""

import re

from data_plane.access.port import Access, StepFailed, Target, must
from data_plane.access.step import Answer, Step
from data_plane.cluster import agent_scripts, files
from data_plane.cluster.agent_scripts import PASSWORD_REJECTED
from data_plane.cluster.agents import AgentOrder, Cleaned, NodePasswordRejected, Prepared, Started
from data_plane.cluster.k3s_files import VERSION, K3sFiles
from data_plane.documents.strict import shown
from data_plane.inspection.agent_service import remove_agent
from data_plane.mesh.node import leave_overlay

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_SERVER = re.compile(r"https://[0-9]{1,3}(?:\.[0-9]{1,3}){3}:[0-9]{1,5}")
_TOKEN = re.compile(r"K10[0-9a-f]{64}::([a-z0-9]{6}\.[a-z0-9]{16})")
_LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}=[-A-Za-z0-9_.]{0,63}")
_RELEASE = re.compile(r"[A-Za-z0-9._+~-]{1,100}")
_WORD = re.compile(r"[a-z0-9_.]{1,64}")
_KIND = re.compile(r"[a-z0-9]{1,20}")


class SshAgents:
    def __init__(self, access: Access, k3s: K3sFiles | None) -> None:
        """`k3s`: what is put on machines; without it, they can only be cleaned."""
        self._access = access
        self._k3s = k3s

    async def prepare(self, machine: Target) -> Prepared:
        step, k3s = agent_scripts.PREPARE, self._k3s
        if k3s is None:
            why = "this reconciler has no K3s files for nodes; set SPLITPLANE_K3S_FILES"
            raise StepFailed(step.name, None, why)
        async with self._access.connect(machine) as session:
            await files.send(session, k3s.all())
            answer = await must(session, step, k3s.digests())
        prepared = _prepared(step, answer)
        if prepared.files != {file.name: file.sha256 for file in k3s.all()}:
            raise StepFailed(step.name, None, "the machine holds files with other digests than ours")
        return prepared

    async def start(self, order: AgentOrder) -> Started:
        step = agent_scripts.START
        labels = [f"{name}={value}" for name, value in order.labels.items()]
        _check(step, order, labels)
        arguments = [order.node, order.address, order.server, *labels]
        async with self._access.connect(order.machine) as session:
            private = [
                order.token,
                order.token.rpartition("::")[2],
            ]  # Also without the hash of the authority.
            answer = await session.run(step, arguments, stdin=f"{order.token}\n".encode(), private=private)
        if answer.exit_status != 0:
            kind = NodePasswordRejected if answer.exit_status == PASSWORD_REJECTED else StepFailed
            raise kind(step.name, answer.exit_status, answer.detail)
        return _started(step, answer)

    async def drop_token(self, machine: Target) -> None:
        async with self._access.connect(machine) as session:
            await must(session, agent_scripts.DROP_TOKEN)

    async def stop(self, machine: Target) -> None:
        async with self._access.connect(machine) as session:
            await must(session, agent_scripts.STOP)

    async def clean(self, machine: Target) -> Cleaned:
        async with self._access.connect(machine) as session:
            await must(session, agent_scripts.CLEAN)
            await remove_agent(session)
            await leave_overlay(session)
            return _cleaned(agent_scripts.LOOK, await must(session, agent_scripts.LOOK))


def _check(step: Step, order: AgentOrder, labels: list[str]) -> None:
    """Raises StepFailed. The values come from us, but a quote in one would add a setting to the agent's."""
    right = (
        _NAME.fullmatch(order.node)
        and _ADDRESS.fullmatch(order.address)
        and _SERVER.fullmatch(order.server)
        and _TOKEN.fullmatch(order.token)
        and all(_LABEL.fullmatch(label) for label in labels)
    )
    if not right:
        raise StepFailed(step.name, None, "the name, an address, a label or the token is malformed")


def _lines(step: Step, answer: Answer) -> list[list[str]]:
    """The lines of an answer, as words."""
    try:
        return [line.split(" ") for line in answer.output.decode("ascii").splitlines()]
    except UnicodeDecodeError:
        raise StepFailed(step.name, None, "the machine's answer is not text") from None


def _prepared(step: Step, answer: Answer) -> Prepared:
    """Raises StepFailed for an answer of another form."""
    kernel = ""
    found: dict[str, str] = {}
    settings: dict[str, str] = {}
    modules: list[str] = []
    for line in _lines(step, answer):
        match line:
            case ["kernel", release] if _RELEASE.fullmatch(release):
                kernel = release
            case ["file", digest, name] if _RELEASE.fullmatch(name) and len(digest) == 64:
                found[name] = digest
            case ["setting", name, value] if _WORD.fullmatch(name) and value.isdigit():
                settings[name] = value
            case ["module", name] if _WORD.fullmatch(name):
                modules.append(name)
            case _:
                raise StepFailed(step.name, None, "the machine did not answer with what it holds")
    return Prepared(found, kernel, settings, tuple(sorted(modules)))


def _started(step: Step, answer: Answer) -> Started:
    version = answer.output.decode("ascii", "replace").strip()
    if not VERSION.fullmatch(version):
        raise StepFailed(step.name, None, "the machine did not answer with a version of K3s")
    return Started(version)


def _cleaned(step: Step, answer: Answer) -> Cleaned:
    """Raises StepFailed for an answer of another form. Names of things are the machine's words, and printable."""
    looked: list[str] = []
    left: list[str] = []
    for line in answer.output.decode("utf-8", "replace").splitlines():
        what, _, rest = line.partition(" ")
        if what == "looked" and _KIND.fullmatch(rest):
            looked.append(rest)
        elif what == "left" and rest:
            left.append(shown(rest, 200))
        else:
            raise StepFailed(step.name, None, "the machine did not answer with what is left on it")
    if "file" not in looked and not left:
        raise StepFailed(step.name, None, "the machine did not look")
    return Cleaned(tuple(left), tuple(looked))
