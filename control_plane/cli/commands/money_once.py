"""Commands that move money: each has a key of its own, with which it can be repeated and takes effect once."""

from argparse import Namespace
from typing import TypeVar

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError, Exit
from control_plane.cli.parsing import Parser
from control_plane.wire.common import Request

T = TypeVar("T")
_FIRST_SERVER_ERROR = 500


def add_key(parser: Parser) -> None:
    """Add the option with which a command is repeated whose answer was lost."""
    parser.add_argument(
        "--key", metavar="KEY", help="identifies the command: one with the same key takes effect once"
    )


def post(client: Client, args: Namespace, path: str, kind: type[T], body: Request) -> Answer[T]:
    """POST a request that moves money. When its outcome is not known, the error says how to repeat the command."""
    key = args.key or client.new_key()
    try:
        return client.post(path, kind, body, key=key)
    except CliError as error:
        if error.exit_code is Exit.NETWORK or (error.status or 0) >= _FIRST_SERVER_ERROR:
            error.advice = (
                "It is not known whether the money was moved. Repeat the command with"
                f" --key {key}: it takes effect once."
            )
        raise
