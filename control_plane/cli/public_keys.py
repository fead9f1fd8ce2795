"""Public keys in files, as ssh-keygen writes them."""

from pathlib import Path

from control_plane.cli.errors import CliError, usage
from control_plane.cli.terminal import Terminal

FILE_BYTES_MAX = 16_384


def public_line(terminal: Terminal, file: str) -> str:
    """The line in a public key file, `-` for standard input. Raises CliError, also for a private key."""
    if file == "-":
        text = terminal.stdin.read(FILE_BYTES_MAX)
    else:
        path = Path(file).expanduser()
        try:
            with path.open("rb") as opened:
                text = opened.read(FILE_BYTES_MAX).decode(errors="replace")
        except OSError as error:
            raise CliError(f"Cannot read {path}: {error.strerror}.", code="file_unreadable") from error
    if "PRIVATE KEY" in text:
        # Checked here, so that the key never leaves this machine.
        raise usage("That is a private key; nothing was sent. Use the file that ends in .pub.")
    return text.strip()
