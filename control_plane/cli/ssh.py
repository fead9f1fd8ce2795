"""The command that runs the system's ssh to a leased machine with a pinned host key.

The address and the key come from the API and end up in a command line and in a file, so both are checked
strictly: an address that starts with a dash would be an option, and a key with a line break would be a
second pinned key. The pinned file names the machine by its id and not by its address, because providers
give the same address to the next tenant.
"""

import base64
import binascii
import hashlib
import ipaddress
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from control_plane.cli.config import check_private
from control_plane.cli.errors import CliError

CONNECT_SECONDS = 15
"""After so long without a connection, ssh gives up instead of waiting for minutes."""
IDENTITY_BYTES_MAX = 65_536
_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+={0,2})(?: .*)?")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_ALIAS = re.compile(r"[a-z0-9_]{1,64}")


def fingerprint(host_key: str | None) -> str | None:
    """The fingerprint as OpenSSH prints it, `SHA256:... (ED25519)`; None without a readable key."""
    match = _KEY.fullmatch(host_key or "")
    if match is None:
        return None
    try:
        blob = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return None
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    kind = match[1].removeprefix("ssh-").split("-")[0].upper()
    return f"SHA256:{digest} ({kind})"


def pinned_line(alias: str, host_key: str) -> str:
    """The line of a known_hosts file that accepts exactly this key."""
    match = _KEY.fullmatch(host_key)
    if match is None or not _ALIAS.fullmatch(alias):
        raise CliError(
            "The host key that the API sent is not valid; no connection is made.", code="host_key_unreadable"
        )
    return f"{alias} {match[1]} {match[2]}\n"


def options(
    *, alias: str, known_hosts: Path, certificate: Path, identity: str, forward_agent: bool = False
) -> dict[str, str]:
    """What ssh is told besides the address. It overrides what the user's configuration says about host keys."""
    return {
        "UserKnownHostsFile": _quoted(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": alias,
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "ConnectTimeout": str(CONNECT_SECONDS),
        # A rented machine is not trusted: whoever controls it could sign with a forwarded agent.
        "ForwardAgent": "yes" if forward_agent else "no",
        # Machines admit certificates alone: other keys would only use up the tries.
        "IdentitiesOnly": "yes",
        "IdentityFile": _quoted(Path(identity).expanduser()),
        "CertificateFile": _quoted(certificate),
    }


def _check(address: str, port: int, user: str) -> None:
    if not (_is_address(address) and _USER.fullmatch(user) and 0 < port < 65_536):
        raise CliError(
            "The address that the API sent is not valid; no connection is made.", code="address_unreadable"
        )


def command(
    *, address: str, port: int, user: str, options: Mapping[str, str], remote: Sequence[str] = ()
) -> list[str]:
    """The ssh command."""
    _check(address, port, user)
    made = ["ssh"]
    for name, value in options.items():
        made += ["-o", f"{name}={value}"]
    return [*made, "-p", str(port), "--", f"{user}@{address}", *remote]


def config_block(
    name: str, *, address: str, port: int, user: str, options: Mapping[str, str], renewal: Sequence[str]
) -> str:
    """A block for ~/.ssh/config. Before each connection ssh runs the renewal, whose output it discards.

    `Match` comes first, because lines that somebody adds behind the block would belong to it.
    """
    _check(address, port, user)
    if not _HOST.fullmatch(name):
        raise CliError(f"{name!r} cannot be the name of a host in ssh's configuration.", code="usage")
    run = shlex.join(renewal).replace("%", "%%").replace('"', '\\"')
    lines = [
        f'Match originalhost {name} exec "{run}"',
        f"Host {name}",
        f"    HostName {address}",
        f"    Port {port}",
        f"    User {user}",
        *(f"    {option} {value}" for option, value in options.items()),
    ]
    return "\n".join(lines) + "\n"


def check_identity(file: str) -> None:
    """Refuse a private key that others can read. OpenSSH would pass it over and try other keys instead.

    A public key may be given as well: it chooses a key of the SSH agent.
    """
    path = Path(file).expanduser()
    try:
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            private = b"PRIVATE KEY" in opened.read(IDENTITY_BYTES_MAX)
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.", code="file_unreadable") from error
    if private:
        check_private(path, status, "a private key")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def _quoted(path: Path) -> str:
    """Quote a path for an option whose value OpenSSH splits at spaces and whose percent signs it expands."""
    text = str(path).replace("%", "%%").replace('"', '\\"')
    return f'"{text}"'


def pins_directory(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "splitplane" / "known_hosts"


def pin(environ: Mapping[str, str], alias: str, host_key: str) -> Path:
    """Write the file that pins this machine's key, and return its path. Each machine has its own file."""
    line = pinned_line(alias, host_key)
    path = pins_directory(environ) / alias
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{alias}.new")
    draft.write_text(line, encoding="ascii")
    draft.replace(path)
    return path


def shell_line(line: Sequence[str]) -> str:
    """The command as a person would type it."""
    return shlex.join(line)
