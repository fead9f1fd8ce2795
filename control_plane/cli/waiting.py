"""Waits until something is as it was asked for, by reading it again. What happens meanwhile goes to standard error.

An outage of the API does not end the wait, unless it lasts longer than `--timeout`, or five minutes without that.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from control_plane.cli import progress
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.progress import POLL_SECONDS
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import clean, span

View = TypeVar("View")


def until(
    terminal: Terminal,
    client: Client,
    answer: Answer[View],
    read: Callable[[], Answer[View]],
    *,
    is_done: Callable[[View], bool],
    says: Callable[[View], str],
    goes_on: str,
) -> Answer[View]:
    """Read it until it is done. `says` is printed whenever it changes, and `goes_on` if somebody interrupts the wait.

    At a terminal the last line moves, and says for how long it is waited. Raises CliError when it cannot be read, and
    KeyboardInterrupt.
    """
    if is_done(answer.value):
        return answer
    printed, began = "", client.clock.seconds()
    answered = began
    outage = progress.OUTAGE_SECONDS_MAX if terminal.timeout is None else terminal.timeout
    try:
        with terminal.moving() as show:
            while not is_done(answer.value):
                line = says(answer.value)
                if line != printed:
                    terminal.note(clean(line))
                    printed = line
                show(f"waiting for {span(timedelta(seconds=client.clock.seconds() - began))}")
                client.clock.sleep(POLL_SECONDS)
                try:
                    answer = read()
                    answered = client.clock.seconds()
                except CliError as error:
                    if not progress.is_passing(error) or client.clock.seconds() - answered >= outage:
                        raise
    except KeyboardInterrupt:
        terminal.note(goes_on)
        raise
    return answer
