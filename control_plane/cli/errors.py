"""How a command fails: an exit code for scripts, a sentence for people."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    REFUSED = 1
    """The API refused, or the command failed."""
    USAGE = 2
    NETWORK = 3
    """No usable answer: the API is unreachable, timed out, or is not our API."""
    INTERRUPTED = 130


class CliError(Exception):
    """Ends the command. `code` is the API's stable code, or one of our own."""

    def __init__(
        self,
        sentence: str,
        *,
        code: str,
        exit_code: Exit = Exit.REFUSED,
        status: int | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
        self.exit_code = exit_code
        self.status = status
        """The HTTP status, when the API answered."""
        self.fields = fields
        """The fields of the request that the API names as invalid."""


def usage(sentence: str) -> CliError:
    return CliError(sentence, code="usage", exit_code=Exit.USAGE)


def network(sentence: str) -> CliError:
    return CliError(sentence, code="network", exit_code=Exit.NETWORK)
