"""Requests kubeconfigs, opens them, and writes them where kubectl finds them.

Each request has a key pair of its own, which lives in this process: the file is sealed for it, so that nothing between
the cluster and this machine can read the token. A kubectl configuration is changed as kubectl itself does it: under its
lock, other clusters, users and contexts as they were, and replaced as a whole.
"""

import base64
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from control_plane.cli import private_files
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.issuing import Kind, until_issued
from control_plane.cli.terminal import Terminal
from control_plane.wire.kubeconfigs import KubeconfigView

Issued = Answer[KubeconfigView]
_KIND = Kind(
    noun="kubeconfig",
    done="issued",
    within_seconds=90.0,  # The first one of a project takes longest, because its namespace has to be made.
    pauses=(0.2, 0.4, 0.8, 1.0),
    blame="the cluster or the operator's reconciler does not answer",
)
_LISTS = ("clusters", "users", "contexts")


def request(
    terminal: Terminal, client: Client, ask: Callable[[str], Issued]
) -> tuple[Issued, dict[str, Any]]:
    """A kubeconfig, as the API shows it and as a file has it. `ask` gets the public key that it is sealed for.

    Raises CliError when it is refused, or not issued in time.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415 - other commands start sooner without it

    private = X25519PrivateKey.generate()
    issued = ask(base64.b64encode(private.public_key().public_bytes_raw()).decode())
    path = f"/v1/kubeconfigs/{issued.value.id}"
    said = f"Waiting for the cluster {issued.value.cluster} to issue it ..."
    with terminal.waiting(said) if issued.value.state == "wanted" else nullcontext():
        issued = until_issued(terminal, _KIND, issued, lambda: client.get(path, KubeconfigView))
    return issued, _opened(issued.value, private)


def _opened(shown: KubeconfigView, private: Any) -> dict[str, Any]:
    """What is sealed, with names that say which cluster and which project it is for."""
    import msgspec  # noqa: PLC0415 - only what was issued is opened
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only a kubeconfig that was issued needs it
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite  # noqa: PLC0415 - only a kubeconfig that was issued needs it

    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    try:
        sealed = base64.b64decode(shown.sealed or "", validate=True)
        file = msgspec.json.decode(
            suite.decrypt(sealed, private, info=shown.id.encode()), type=dict[str, Any]
        )
        return _named(file, f"{shown.cluster}/{shown.project}")
    except (InvalidTag, ValueError, KeyError, TypeError, IndexError):
        raise CliError(
            f"The kubeconfig {shown.id} does not open: it is not the one that was requested. Revoke it with"
            f" `splitplane kubeconfig revoke {shown.id}`, and tell the operator.",
            code="kubeconfig_unreadable",
        ) from None


def _named(file: dict[str, Any], name: str) -> dict[str, Any]:
    """The file with its one cluster, user and context under this name.

    Nothing else is taken over: a file may also name programs for kubectl to run, and whoever sealed this one could be
    somebody else than the reconciler.
    """
    (cluster,), (user,), (context,) = (file[part] for part in _LISTS)
    server = _text(cluster["cluster"]["server"])
    if not server.startswith("https://"):
        raise ValueError("a token is sent through TLS only")
    verified = {
        part: _text(cluster["cluster"][part]) for part in ("certificate-authority-data", "tls-server-name")
    }
    namespace = _text(context["context"]["namespace"])
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **verified}}],
        "users": [{"name": name, "user": {"token": _text(user["user"]["token"])}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def configuration(environ: Mapping[str, str]) -> Path:
    """Where kubectl writes: the first file of KUBECONFIG, or `~/.kube/config`."""
    named = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(named[0]).expanduser() if named else home / ".kube" / "config"


def check(path: Path, *, merges: bool) -> None:
    """Find out whether a kubeconfig can be written there, before one is requested whose key would be lost.

    `merges`: into a configuration of kubectl. Raises CliError.
    """
    with _reported(path):
        path = path.resolve()
        if merges:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(path):
                _read(path)
        elif path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif not os.access(path.parent, os.W_OK):
            missing = errno.EACCES if path.parent.is_dir() else errno.ENOENT
            raise OSError(missing, os.strerror(missing))


def write(path: Path, file: Mapping[str, Any]) -> str:
    """Write a kubeconfig into a file of its own, which only its owner can read. Returns the name of its context."""
    with _reported(path):
        _replace(path, file)
    return str(file["current-context"])


def merge(path: Path, file: Mapping[str, Any]) -> str:
    """Add a kubeconfig to a configuration of kubectl, or replace the one for the same place, and make it current.

    Returns the name of its context there.
    """
    with _reported(path):
        # What a link leads to is replaced, not the link.
        path = path.resolve()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path):
            merged = _merged(_read(path), file)
            _replace(path, merged)
    return str(merged["current-context"])


def _merged(kept: dict[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    file = _distinct(kept, file)
    name = file["current-context"]
    merged = {"apiVersion": "v1", "kind": "Config", **kept, "current-context": name}
    for part in _LISTS:
        others = [each for each in kept.get(part) or [] if each["name"] != name]
        merged[part] = [*others, *file[part]]
    return merged


def _distinct(kept: Mapping[str, Any], file: Mapping[str, Any]) -> Mapping[str, Any]:
    """The file, under a longer name if the name leads elsewhere: other organizations use the same names."""
    name, context = file["current-context"], file["contexts"][0]["context"]
    taken = [each for part in _LISTS for each in kept.get(part) or [] if each["name"] == name]
    same = {"namespace": context["namespace"]}, {"server": file["clusters"][0]["cluster"]["server"]}
    told = [each.get("context") or each.get("cluster") or {} for each in taken]
    leads_elsewhere = any(
        key in place and place[key] != wanted[key] for place in told for wanted in same for key in wanted
    )
    return _named(dict(file), f"{name}/{context['namespace']}") if leads_elsewhere else file


def _read(path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - other commands start sooner without it

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, UnicodeDecodeError):
        found = 0
    if found is None:
        return {}
    lists = [found.get(part) or [] for part in _LISTS] if isinstance(found, dict) else [0]
    if not all(
        isinstance(each, list) and all(isinstance(entry, dict) and "name" in entry for entry in each)
        for each in lists
    ):
        raise CliError(
            f"{path} is no configuration of kubectl, and was left as it is. Use --output FILE, or repair it.",
            code="file_unreadable",
        )
    return dict(found)


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    import yaml  # noqa: PLC0415 - only a kubeconfig that was issued needs it

    private_files.replace(path, yaml.safe_dump(dict(content), sort_keys=False))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock that kubectl takes before it writes its configuration."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        raise CliError(
            f"Another program writes {path}; try again. If none does, delete {lock}.", code="file_locked"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CliError(f"Cannot write {path}: {error.strerror}.", code="file_unwritable") from error
