"""A machine that answers the steps of SSH sessions as a test says."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

from data_plane.access.line import Line
from data_plane.access.port import Target, Unreachable
from data_plane.access.step import Answer, Step, detail_of
from data_plane.cluster import files

TARGET = Target("192.0.2.1", 22, "ssh-ed25519 key", "lk-1")


@dataclass
class Machine:
    """Answers each step as it is told to, by the step's name; what is not told is done without a word."""

    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    breaks_at: str | None = None
    ran: list[tuple[str, tuple[str, ...], bytes]] = field(
        default_factory=list[tuple[str, tuple[str, ...], bytes]]
    )

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator["Machine"]:
        assert target == TARGET
        yield self

    async def run(
        self, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"", private: Sequence[str] = ()
    ) -> Answer:
        self.ran.append((step.name, tuple(arguments), stdin))
        if step.name == self.breaks_at:
            raise Unreachable(f"{step.name}: the connection broke")
        if step == files.PUT:
            return Answer(0, b"%d\n" % (int(arguments[1]) + len(stdin)), "")
        answer = self.answers.get(step.name, Answer(0, b"", ""))
        return replace(answer, detail=detail_of(answer.detail.encode(), private))

    def converse(self, step: Step, arguments: Sequence[str] = ()) -> AbstractAsyncContextManager[Line]:
        raise NotImplementedError

    def tells(self, step: Step, output: str) -> None:
        self.answers[step.name] = Answer(0, output.encode(), "")

    def fails(self, step: Step, status: int, detail: str) -> None:
        self.answers[step.name] = Answer(status, b"", detail)
