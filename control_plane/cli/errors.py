"""How a command fails: an exit code and a JSON object for scripts, a sentence for people."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    OK = 0
    REFUSED = 1
    """The API refused, or the command failed."""
    USAGE = 2
    NETWORK = 3
    """No usable answer: the API is unreachable, timed out, or is not our API."""
    INTERRUPTED = 130


TITLES = {
    Exit.REFUSED: "The command failed",
    Exit.USAGE: "Wrong usage",
    Exit.NETWORK: "No answer from the API",
    Exit.INTERRUPTED: "Interrupted",
}


class CliError(Exception):
    """Ends the command. `code` is the API's stable code, or one of our own (docs/cli.md lists those)."""

    def __init__(
        self,
        sentence: str,
        *,
        code: str,
        exit_code: Exit = Exit.REFUSED,
        status: int | None = None,
        fields: tuple[str, ...] = (),
        problem: Mapping[str, Any] | None = None,
        usage: str = "",
        reason: str = "",
        since: float | None = None,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
        self.exit_code = exit_code
        self.status = status
        """The HTTP status, when the API answered."""
        self.fields = fields
        """The fields of the request that the API names as invalid."""
        self.problem = problem or {}
        """The problem document that the API answered with; empty when the error is our own."""
        self.usage = usage
        """How the command is used, for an error in the command line."""
        self.reason = reason
        """What happened, as a clause whose subject is the API; empty when the error is our own."""
        self.since = since
        """Since when the API has not answered, in seconds of the client's clock; None when it has."""
        self.advice = ""
        """How to go on, where the code alone does not say it."""
        self.others: Sequence[CliError] = ()
        """Further errors of a command that does several things."""

    def document(self) -> dict[str, Any]:
        """The error as problem details (RFC 9457), as the API sends them. `status` is there if the API answered."""
        own = {
            "type": f"urn:splitplane:error:{self.code}",
            "title": TITLES.get(self.exit_code, "The command failed"),
            "detail": self.sentence,
            "code": self.code,
        }
        status = {} if self.status is None else {"status": self.status}
        others = {"others": [error.document() for error in self.others]} if self.others else {}
        return {**own, **status, **self.problem, **others}


def usage(sentence: str) -> CliError:
    return CliError(sentence, code="usage", exit_code=Exit.USAGE)


def unreachable(sentence: str, *, reason: str, since: float) -> CliError:
    return CliError(sentence, code="unreachable", exit_code=Exit.NETWORK, reason=reason, since=since)


def not_the_api(sentence: str) -> CliError:
    """Something answered, and it is not an API that this version understands."""
    reason = "answered with something that is not an answer of the API"
    return CliError(sentence, code="not_the_api", exit_code=Exit.NETWORK, reason=reason)
