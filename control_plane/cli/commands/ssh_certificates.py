"""SSH certificates: get one, list those of a lease, revoke them."""

from argparse import Namespace
from pathlib import Path

from control_plane.cli import certificates, private_files
from control_plane.cli.answers import page_of
from control_plane.cli.commands.lease_ssh import key_pair
from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.errors import usage
from control_plane.cli.names import Names
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.ssh_certificates import ssh_certificate_page, ssh_certificate_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.ssh_certificates import SshCertificatePage, SshCertificateView

PREFIX = "cert"


def add(to: Commands) -> None:
    commands = noun(to, "ssh-certificate", "Get, list and revoke SSH certificates of leases.")
    parser = command(
        commands,
        "get",
        get,
        "Get a certificate, unless the last one is valid for another minute.",
        more=(
            "`lease ssh` does this by itself. The certificate is for a key pair of its own,\n"
            "for your key (-i), or for a public key alone (--public-key), for instance of a\n"
            "machine that has no login. With -i or --public-key it is written beside your\n"
            "key, where ssh finds it."
        ),
        examples="""
        splitplane ssh-certificate get train-1
        splitplane ssh-certificate get train-1 --public-key ~/.ssh/id_ed25519.pub
        splitplane ssh-certificate get train-1 --public-key ci.pub --output -
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument(
        "-i",
        "--identity",
        metavar="FILE",
        help="your private key, or the .pub file of a key in your SSH agent",
    )
    parser.add_argument("--public-key", metavar="FILE", help="a .pub file; always gets a new certificate")
    parser.add_argument("--output", metavar="FILE", help="where to write it; - prints it")
    parser = command(
        commands,
        "list",
        list_certificates,
        "List the certificates of a lease: who could log in, and when.",
        examples="splitplane ssh-certificate list train-1",
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser = command(
        commands,
        "revoke",
        revoke,
        "Revoke certificates of a lease, and end the sessions that they opened.",
        examples="""
        splitplane ssh-certificate revoke train-1 --all
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument("certificates", metavar="CERTIFICATE", nargs="*", help="the id of a certificate")
    parser.add_argument("--all", action="store_true", help="every certificate that is valid")


def get(terminal: Terminal, args: Namespace) -> None:
    if args.public_key and args.identity:
        raise usage("--identity and --public-key cannot be combined.")
    client = terminal.client()
    lease_id = args.lease if is_id("le", args.lease) else find(client, [args.lease])[0].value.id
    if args.public_key:
        public = Path(args.public_key).expanduser()
        issued = certificates.request(terminal, client, lease_id, certificates.public_line(public))
        file = public.with_name(f"{public.name.removesuffix('.pub')}-cert.pub")
        if args.output is None:
            private_files.replace(file, f"{issued.value.certificate}\n")
    else:
        file, issued = certificates.current(terminal, client, lease_id, key_pair(terminal, args.identity))
    if args.output == "-" and not args.json:
        terminal.write(f"{issued.value.certificate}\n")
        return
    if args.output not in (None, "-"):
        file = Path(args.output).expanduser()
        private_files.replace(file, f"{issued.value.certificate}\n")
    terminal.present(
        args.json,
        issued,
        lambda shown: ssh_certificate_page(shown, _from_home(terminal, file), terminal.now()),
    )


def _from_home(terminal: Terminal, file: Path) -> str:
    """A path as a person writes it."""
    home = terminal.environ.get("HOME")
    return f"~/{file.relative_to(home)}" if home and file.is_relative_to(home) else str(file)


def list_certificates(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    answer = client.every(f"/v1/leases/{lease.id}/ssh-certificates", SshCertificatePage)
    terminal.present(
        args.json, answer, lambda page: ssh_certificate_table(page.items, Names(client), terminal.now())
    )


def revoke(terminal: Terminal, args: Namespace) -> None:
    if bool(args.certificates) == args.all:
        raise usage("Name the certificates to revoke, or give --all.")
    for word in args.certificates:
        if not is_id(PREFIX, word):
            raise usage(
                f"{word!r} is not the id of a certificate; see: splitplane ssh-certificate list {args.lease}"
            )
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    path = f"/v1/leases/{lease.id}/ssh-certificates"
    ids = args.certificates
    if args.all:
        known = client.every(path, SshCertificatePage).value.items
        ids = [each.id for each in known if each.state in ("wanted", "signed")]
    answers = [client.post(f"{path}/{each}/revoke", SshCertificateView) for each in ids]
    page = page_of(answers, SshCertificatePage)
    terminal.present(
        args.json, page, lambda page: ssh_certificate_table(page.items, Names(client), terminal.now())
    )
