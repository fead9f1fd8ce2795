"""SSH keys, which leases are created with."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun, suggestion
from control_plane.cli.public_keys import public_line
from control_plane.cli.render.ssh_keys import ssh_key_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.ssh_keys import SshKeyList, SshKeyRequest, SshKeyView

PATH = "/v1/ssh-keys"
FILES = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")
"""The files that are tried when none is given, in this order."""


def add(to: Commands) -> None:
    keys = noun(to, "ssh-key", "Add, list and delete stored SSH keys, which leases can be limited to.")
    parser = command(
        keys,
        "add",
        add_key,
        "Add a public key.",
        more=(
            "To log in you need no stored key: see splitplane lease ssh. A lease that is\n"
            "created with --ssh-key admits the keys that it names, and no other.\n"
            "Without FILE: the first of ~/.ssh/id_ed25519.pub, id_ecdsa.pub, id_rsa.pub."
        ),
        examples="""
        splitplane ssh-key add laptop
        splitplane ssh-key add ci ./deploy_key.pub
        ssh-add -L | head -1 | splitplane ssh-key add agent -
        """,
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a .pub file, or - for standard input")
    parser.add_argument(
        "--project", metavar="PROJECT", help="only for leases of this project (default: of all projects)"
    )
    command(keys, "list", list_keys, "List your keys.", examples="splitplane ssh-key list")
    parser = command(
        keys,
        "delete",
        delete_key,
        "Delete a key. Leases that are limited to it admit it no longer.",
        more="Certificates for this key are revoked at once, and their sessions end.",
        examples="splitplane ssh-key delete laptop",
    )
    parser.add_argument("key", metavar="KEY", help="name or id")


def add_key(terminal: Terminal, args: Namespace) -> None:
    line = public_line(terminal, args.file or str(_own_key(terminal)))
    answer = terminal.client().post(PATH, SshKeyView, SshKeyRequest(args.name, line, args.project))
    terminal.present(args.json, answer, lambda key: ssh_key_table([key], terminal.now()))


def _own_key(terminal: Terminal) -> Path:
    folder = Path(terminal.environ.get("HOME") or "~").expanduser() / ".ssh"
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    raise usage(
        f"There is no public key in {folder}; give a FILE, or create a key with: ssh-keygen -t ed25519"
    )


def list_keys(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, SshKeyList)
    terminal.present(args.json, answer, lambda page: ssh_key_table(page.items, terminal.now()))


def delete_key(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    key = find(client, [args.key])[0]
    client.delete(f"{PATH}/{key.id}")
    if args.json:
        terminal.json({"deleted": key.id})
    elif terminal.quiet:
        terminal.write(f"{key.id}\n")
    else:
        terminal.say(f"Deleted {key.name} ({key.fingerprint}).")


def find(client: Client, words: Sequence[str]) -> list[SshKeyView]:
    """The keys with these names or ids."""
    known = client.whole(PATH, SshKeyList).value.items
    found = []
    for word in words:
        matching = [key for key in known if word in (key.name, key.id)]
        if not matching:
            names = ", ".join(key.name for key in known) or "none"
            near = suggestion(word, (key.name for key in known))
            raise CliError(
                f"There is no SSH key {word!r}.{near} Your keys are: {names}.", code="ssh_key_unknown"
            )
        found.append(matching[0])
    return found
