"""The SSH certificates of this machine: a key pair of our own, and the latest certificate for each lease and key.

Everything lies in the state directory, in files that only their owner can read. A certificate is used again until it
has less than a minute left, or the API says that it was revoked. While the API does not answer, one that is valid by
its time is used, so that a lease can be reached while the control plane is away.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from control_plane.cli import private_files
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.config import check_private
from control_plane.cli.errors import CliError, Exit
from control_plane.cli.issuing import Kind, until_issued
from control_plane.cli.parsing import is_id
from control_plane.cli.terminal import Terminal
from control_plane.wire.ssh_certificates import SshCertificateRequest, SshCertificateView

RENEWED_BEFORE = timedelta(minutes=1)
"""So long before its end a certificate is replaced."""
_KIND = Kind(
    noun="certificate",
    done="signed",
    within_seconds=20.0,
    pauses=(0.03, 0.05, 0.1, 0.2, 0.4, 0.8),
    blame="the operator's reconciler is not running",
)
PUBLIC_BYTES_MAX = 16_384

Issued = Answer[SshCertificateView]


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The private key that ssh uses, or None for one in an SSH agent, and the public key that is signed."""

    identity: Path | None
    public: Path
    line: str

    @property
    def digest(self) -> str:
        """Tells keys apart in names of files."""
        return hashlib.sha256(" ".join(self.line.split()[:2]).encode()).hexdigest()[:8]


def folder(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or "~").expanduser()
    made = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "splitplane" / "ssh"
    made.mkdir(mode=0o700, parents=True, exist_ok=True)
    return made


def own_key(terminal: Terminal) -> KeyPair:
    """Our own key pair, which is made when there is none."""
    identity = folder(terminal.environ) / "id_ed25519"
    if not identity.exists():
        draft = identity.with_name(f".new-{os.urandom(8).hex()}")
        terminal.make_key(draft)
        public = draft.with_name(f"{draft.name}.pub")
        public.replace(identity.with_name("id_ed25519.pub"))
        draft.replace(identity)  # Last, as the pair is complete when it exists.
    with identity.open("rb") as opened:
        check_private(identity, os.fstat(opened.fileno()), "a private key")
    return key_pair(identity)


def key_pair(identity: Path) -> KeyPair:
    """The key pair of a private key, or of a public key whose private key is in an SSH agent."""
    if identity.suffix == ".pub":
        return KeyPair(None, identity, public_line(identity))
    public = identity.with_name(f"{identity.name}.pub")
    if not public.is_file():
        raise CliError(
            f"There is no {public}, which has to be signed. To make it: ssh-keygen -y -f {identity} > {public}",
            code="file_unreadable",
        )
    return KeyPair(identity, public, public_line(public))


def public_line(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            text = opened.read(PUBLIC_BYTES_MAX).decode(errors="replace").strip()
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.", code="file_unreadable") from error
    if "PRIVATE KEY" in text:
        # Checked here, so that the key never leaves this machine.
        raise CliError(
            f"{path} is a private key; nothing was sent. Use the file that ends in .pub.", code="usage"
        )
    return text


@dataclass(frozen=True, slots=True)
class Store:
    """Where the latest certificate of a lease for a key lies, and what the API said of it."""

    certificate: Path
    answer: Path

    def kept(self) -> Issued | None:
        """The certificate that was stored last; None when there is none that can be read."""
        try:
            content = msgspec.json.decode(self.answer.read_bytes())
            return Answer(content, msgspec.convert(content, SshCertificateView))
        except (OSError, msgspec.MsgspecError):
            return None

    def keep(self, issued: Issued) -> None:
        """Store a certificate. Another process that reads finds the old one, or this one as a whole."""
        private_files.replace(self.certificate, f"{issued.value.certificate}\n")
        private_files.replace(self.answer, msgspec.json.encode(issued.content).decode())


def store_of(terminal: Terminal, lease_id: str, pair: KeyPair) -> Store:
    if not is_id("le", lease_id):  # It becomes a part of a path, and a line of ssh's configuration.
        raise CliError(
            "The id of the lease that the API sent is not valid; no connection is made.",
            code="lease_unreadable",
        )
    base = folder(terminal.environ) / f"{lease_id[-12:]}-{pair.digest}"
    return Store(base.with_name(f"{base.name}-cert.pub"), base.with_name(f"{base.name}.json"))


def current(terminal: Terminal, client: Client, lease_id: str, pair: KeyPair) -> tuple[Path, Issued]:
    """A certificate of a lease for this key that is valid for a minute at least, and its file."""
    store = store_of(terminal, lease_id, pair)
    kept = store.kept()
    if kept is not None and kept.value.lease_id == lease_id and _lasts(kept.value, terminal.now()):
        try:
            if _is_signed(client, kept.value):
                return store.certificate, kept
        except CliError as error:
            if error.exit_code is not Exit.NETWORK:
                raise
            terminal.note("The API does not answer; the certificate at hand is used.")
            return store.certificate, kept
    issued = request(terminal, client, lease_id, pair.line)
    store.keep(issued)
    return store.certificate, issued


def _is_signed(client: Client, certificate: SshCertificateView) -> bool:
    path = f"/v1/leases/{certificate.lease_id}/ssh-certificates/{certificate.id}"
    try:
        return client.get(path, SshCertificateView).value.state == "signed"
    except CliError as error:
        if error.status == 404:
            return False
        raise


def _lasts(certificate: SshCertificateView, now: datetime) -> bool:
    return certificate.valid_before is not None and now + RENEWED_BEFORE < certificate.valid_before


def request(terminal: Terminal, client: Client, lease_id: str, key: str) -> Issued:
    """Have a new certificate signed. Raises CliError when it is refused, or not signed in time."""
    path = f"/v1/leases/{lease_id}/ssh-certificates"
    issued = client.post(path, SshCertificateView, SshCertificateRequest(key))
    where = f"{path}/{issued.value.id}"
    return until_issued(terminal, _KIND, issued, lambda: client.get(where, SshCertificateView))
