"""A challenger that answers from a script: what a machine's next challenges come to, by its address.

A machine without a script passes everything, by CUDA, with GPUs of its own. No prover runs.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from data_plane.access.line import Frame, Line, LineBroken
from data_plane.access.port import Target
from data_plane.proof.challenger.port import Expected, Finding, Occasion, Outcome, ProofReport, Rate
from data_plane.proof.verifier.jobs import VerifierAway

GIB = 1 << 30


@dataclass(frozen=True)
class Answer:
    """What one challenge comes to."""

    outcome: Outcome = Outcome.PASSED
    source: str = "cuda"
    code: str = "too_slow"
    """Of the finding, unless it passed."""
    hinted: bool = False
    attested: bool = False
    gpu_uuids: tuple[str, ...] | None = None
    """None: the machine's own."""
    devices: tuple[str, ...] = ()
    seconds: float = 0.0
    """How long it takes on the stage's clock."""
    away: bool = False
    """Our verifier is away."""
    hangs: bool = False
    """It never ends."""


PASSED = Answer()
FAILED = Answer(Outcome.FAILED)
UNANSWERED = Answer(Outcome.UNANSWERED, source="", code="line_broken")
EMULATED = Answer(Outcome.EMULATED, source="emulated", code="emulated")
AWAY = Answer(away=True)


@dataclass(frozen=True)
class DeadLine:
    """A line that leads nowhere and names its target."""

    target: Target

    async def send(self, frame: bytes) -> float:
        raise LineBroken("this line leads nowhere")

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        raise LineBroken("this line leads nowhere")


@dataclass
class ScriptedChallenger:
    """`port.Challenger`, for lines of `DeadLine`."""

    sleep: Callable[[float], None] = lambda _: None
    scripts: dict[str, deque[Answer]] = field(default_factory=dict[str, deque[Answer]])
    always: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """What a machine answers when its script is at its end; None of a machine is a pass."""
    otherwise: Answer = PASSED
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a challenge hangs."""
    asked: list[tuple[str, Occasion]] = field(default_factory=list[tuple[str, Occasion]])

    def script(self, address: str, *answers: Answer) -> None:
        self.scripts[address] = deque(answers)

    def occasions(self, address: str) -> list[Occasion]:
        return [occasion for asked, occasion in self.asked if asked == address]

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        assert isinstance(line, DeadLine)
        address = line.target.address
        self.asked.append((address, occasion))
        script = self.scripts.get(address)
        answer = script.popleft() if script else self.always.get(address, self.otherwise)
        if answer.away:
            raise VerifierAway("no answer in 10 s")
        if answer.hangs:
            self.hanging.set()
            await asyncio.Event().wait()
        self.sleep(answer.seconds)
        return _report(answer, expected, occasion, address)


async def _nothing(_: str) -> None:
    pass


@dataclass(frozen=True)
class Interposed:
    """`port.Challenger`: another one, with something done before each challenge or to each report."""

    inner: ScriptedChallenger
    before: Callable[[str], Awaitable[None]] = _nothing
    """With the machine's address."""
    instead: Callable[[ProofReport], ProofReport] = lambda report: report

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        assert isinstance(line, DeadLine)
        await self.before(line.target.address)
        return self.instead(await self.inner.challenge(line, expected, occasion))


def _report(answer: Answer, expected: Expected, occasion: Occasion, address: str) -> ProofReport:
    gpus = range(expected.count)
    report = ProofReport(
        outcome=answer.outcome,
        occasion=occasion,
        source=answer.source,
        driver="570.124.06",
        reference="estimated 2026-11",
        findings=(),
        hints=(Finding("gaps", 0, "its clock jumped 40 times in a second"),) if answer.hinted else (),
        gpu_uuids=answer.gpu_uuids or tuple(f"GPU-{address}-{gpu}" for gpu in gpus),
        proven_bytes=tuple(72 * GIB for _ in gpus),
        rates=tuple(Rate(gpu, "walk", 0.25, 2.0**39) for gpu in gpus),
        seconds=21.5,
        attested=answer.attested,
        devices=answer.devices,
        evidence={"orders": {"fill": "seeds", "walk": "nonces"}, "roots": ["00ff"]},
    )
    if answer.outcome is Outcome.PASSED:
        return report
    return replace(report, findings=(Finding(answer.code, 0, "1.9 s, and 1.2 s is the limit"),))
