"""Log in to the machine of a lease: `lease ssh`, and `lease ssh-config` for other programs that use ssh."""

from argparse import Namespace
from pathlib import Path

from control_plane.cli import certificates, progress, ssh
from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command
from control_plane.cli.terminal import Terminal
from control_plane.wire.explanations import ExplanationView
from control_plane.wire.leases import LeaseView, MachineView


def add(leases: Commands) -> None:
    parser = command(
        leases,
        "ssh",
        connect,
        "Open a shell on a machine, or run a command there.",
        more=(
            "Gets an SSH certificate, valid for ten minutes, and runs your own ssh with it. A\n"
            "session that is open stays open. The machine's host key is pinned, so that\n"
            "another machine at the same address is refused. Your SSH agent is forwarded only\n"
            "with -A. Without -i, a key pair of its own is made once and used for all leases."
        ),
        examples="""
        splitplane lease ssh train-1
        splitplane lease ssh train-1 -- nvidia-smi -L
        splitplane lease ssh train-1 -i ~/.ssh/id_ed25519
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    _add_identity(parser)
    parser.add_argument(
        "-A", "--forward-agent", action="store_true", help="forward your SSH agent to the machine"
    )
    parser.add_argument(
        "--print", dest="print_only", action="store_true", help="print the ssh command, do not run it"
    )
    parser.set_defaults(remote=[])
    parser.usage = "splitplane lease ssh [options] LEASE [-- COMMAND ...]"
    parser = command(
        leases,
        "ssh-config",
        config,
        "Print a block for ~/.ssh/config: for scp, rsync, VS Code, plain ssh.",
        more=(
            "Append it: splitplane lease ssh-config train-1 >> ~/.ssh/config. ssh then gets a\n"
            "new certificate by itself whenever the last one ends within a minute, by running\n"
            "splitplane ssh-certificate get. It needs a stored login, or SPLITPLANE_URL and\n"
            "SPLITPLANE_API_KEY where ssh is started. Then for instance: scp a.tar train-1:"
        ),
        examples="""
        splitplane lease ssh-config train-1
        splitplane lease ssh-config train-1 --host gpu -i ~/.ssh/id_ed25519
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    _add_identity(parser)
    parser.add_argument("--host", metavar="NAME", help="the name for ssh (default: the lease's name)")


def _add_identity(parser: Commands) -> None:
    parser.add_argument(
        "-i",
        "--identity",
        metavar="FILE",
        help="your private key, or the .pub file of a key in your SSH agent",
    )


def connect(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    machine = _ready_machine(lease)
    pair = key_pair(terminal, args.identity)
    if not (args.json or args.print_only):
        _check_simulation(terminal, client, lease, machine)
    line = ssh.command(
        address=str(machine.address),
        port=machine.ssh_port,
        user=machine.ssh_user,
        options=_options(terminal, client, lease, pair, forward_agent=args.forward_agent),
        remote=args.remote,
    )
    if args.json:
        terminal.json({"lease": lease.id, "command": line})
    elif args.print_only:
        terminal.write(ssh.shell_line(line) + "\n")
    else:
        terminal.become(line)


def config(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    machine = _ready_machine(lease)
    pair = key_pair(terminal, args.identity)
    renewal = [_program(terminal), "ssh-certificate", "get", lease.id, "--quiet"]
    if args.identity is not None:
        renewal += ["--identity", str(Path(args.identity).expanduser().absolute())]
    if terminal.profile is not None:
        renewal += ["--profile", terminal.profile]
    host = args.host or lease.name
    block = ssh.config_block(
        host,
        address=str(machine.address),
        port=machine.ssh_port,
        user=machine.ssh_user,
        options=_options(terminal, client, lease, pair, forward_agent=False),
        renewal=renewal,
    )
    if args.json:
        terminal.json({"lease": lease.id, "host": host, "config": block})
    else:
        terminal.write(block)


def _program(terminal: Terminal) -> str:
    """The path of this command, as ssh can run it from any folder."""
    return str(Path(terminal.program).absolute()) if "/" in terminal.program else terminal.program


def key_pair(terminal: Terminal, identity: str | None) -> certificates.KeyPair:
    """The key pair that was named, or our own."""
    if identity is None:
        return certificates.own_key(terminal)
    ssh.check_identity(identity)
    return certificates.key_pair(Path(identity).expanduser())


def _options(
    terminal: Terminal, client: Client, lease: LeaseView, pair: certificates.KeyPair, *, forward_agent: bool
) -> dict[str, str]:
    machine = lease.machine
    if machine is None or machine.host_key is None:
        raise CliError(
            f"The host key of {lease.name} is not known, so its machine cannot be verified;"
            " no connection is made.",
            code="no_host_key",
        )
    known_hosts = ssh.pin(terminal.environ, machine.machine_id, machine.host_key)
    certificate, _ = certificates.current(terminal, client, lease.id, pair)
    return ssh.options(
        alias=machine.machine_id,
        known_hosts=known_hosts,
        certificate=certificate,
        identity=str(pair.identity or pair.public),
        forward_agent=forward_agent,
    )


def _ready_machine(lease: LeaseView) -> MachineView:
    if not progress.is_ready(lease):
        hint = (
            ""
            if lease.state in ("ending", "ended")
            else f" To wait for it: splitplane lease watch {lease.id}"
        )
        raise CliError(f"{lease.name} is {lease.state}, not ready.{hint}", code="not_ready")
    machine = lease.machine
    if machine is None or not machine.address:
        raise CliError(f"The address of the machine of {lease.name} is not known yet.", code="no_address")
    return machine


def _check_simulation(terminal: Terminal, client: Client, lease: LeaseView, machine: MachineView) -> None:
    """Refuse a simulated machine, on which nothing can listen, instead of letting ssh wait for it.

    The API does not know which machines are simulated. Their GPUs always are emulated, and nothing answers at their
    address; a real machine for tests has emulated GPUs too, and answers.
    """
    if machine.address is None or terminal.reaches(machine.address, machine.ssh_port):
        return
    reports = client.get(f"/v1/leases/{lease.id}/explanation", ExplanationView).value.reports
    of_machine = [report for report in reports if report.machine_id == machine.machine_id]
    if any(report.source == "emulated" for report in of_machine):
        raise CliError(
            f"The machine of {lease.name} is simulated: its GPUs are emulated, and nothing answers at"
            f" {machine.address} port {machine.ssh_port}. There is nothing to log in to.",
            code="machine_simulated",
        )
