"""Leases: create, watch, list, show, ssh, release, and why."""

from argparse import Namespace
from typing import Any

from control_plane.cli import progress, ssh
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.commands import ssh_keys
from control_plane.cli.commands.catalogue import add_constraints, ceiling
from control_plane.cli.commands.lookup import LIVE_STATES, Found, find
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.progress import End
from control_plane.cli.render.explanation import explanation_page
from control_plane.cli.render.leases import lease_page, lease_table
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural, price, sentence, spaced
from control_plane.wire.leases import ExplanationView, LeasePage, LeaseRequest, LeaseView
from control_plane.wire.ssh_keys import SshKeyList

STATES = (*LIVE_STATES, "ended")
LEASE_HELP = "name, id, or the unambiguous beginning of an id"


def add(to: Commands) -> None:
    leases = noun(to, "lease", "Create, watch, use and release leases of machines.")
    _add_create(leases)
    parser = command(
        leases,
        "watch",
        watch,
        "Watch leases until each is ready or has failed.",
        examples="""
        splitplane lease watch train-1
        splitplane lease watch train-1 train-2 le_0190c2a1b2c3
        splitplane lease watch train-1 --until ended
        """,
    )
    parser.add_argument("leases", metavar="LEASE", nargs="+", help=LEASE_HELP)
    parser.add_argument(
        "--until", choices=("ready", "ended"), help="default: ready, or ended if it is ending already"
    )
    parser = command(
        leases,
        "list",
        list_leases,
        "List your leases, newest first.",
        examples="""
        splitplane lease list
        splitplane lease list --all
        splitplane lease list --project research
        splitplane lease list --state ready --json
        """,
    )
    parser.add_argument("--all", action="store_true", help="include leases that have ended")
    parser.add_argument(
        "--state", action="append", choices=STATES, help="only leases in this state; may be repeated"
    )
    parser.add_argument("--project", metavar="NAME", help="only leases of this project")
    parser = command(leases, "show", show, "Show one lease.", examples="splitplane lease show train-1")
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    _add_ssh(leases)
    parser = command(
        leases,
        "release",
        release,
        "Release leases. Billing stops at once, and the data on the machines is lost.",
        examples="""
        splitplane lease release train-1
        splitplane lease release train-1 train-2 --yes --wait
        """,
    )
    parser.add_argument("leases", metavar="LEASE", nargs="+", help=LEASE_HELP)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--wait", action="store_true", help="wait until the provider confirms the end")


def add_why(to: Commands) -> None:
    parser = command(
        to,
        "why",
        why,
        "Explain how a lease came to be where it is.",
        more=(
            "Shows why it was admitted, every offer that was considered and why it was\n"
            "rejected, every attempt and how it ended, what the GPUs proved, and the journal."
        ),
        examples="splitplane why train-1",
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)


def _add_create(leases: Commands) -> None:
    parser = command(
        leases,
        "create",
        create,
        "Lease a machine and wait until it is ready.",
        more=(
            "Billing starts when the machine is verified. Leaving early (Ctrl-C, --no-wait)\n"
            "does not end the lease. The machine accepts all of your SSH keys, unless you\n"
            "choose some with --ssh-key."
        ),
        examples="""
        splitplane lease create h100-sxm.1x
        splitplane lease create h100-sxm.8x --name train-1 --region eu --max-price 25
        splitplane lease create h100-sxm.1x --ssh-key laptop --ssh-key ci --no-wait
        splitplane lease create h100-sxm.1x --project research
        """,
    )
    add_constraints(parser)
    parser.add_argument("--name", help="name of the lease (default: a generated one)")
    parser.add_argument(
        "--project", metavar="NAME", help="the project it belongs to (default: the one called default)"
    )
    parser.add_argument("--ssh-key", metavar="KEY", action="append", help="name or id; may be repeated")
    parser.add_argument("--no-ssh-key", action="store_true", help="lease a machine that accepts no SSH key")
    parser.add_argument(
        "--no-wait",
        "--detach",
        dest="no_wait",
        action="store_true",
        help="return as soon as the lease is admitted",
    )


def _add_ssh(leases: Commands) -> None:
    parser = command(
        leases,
        "ssh",
        connect,
        "Open a shell on a machine, or run a command there.",
        more=(
            "Runs your own ssh with the machine's host key pinned, so that another machine\n"
            "at the same address is refused. Your SSH agent is forwarded only with -A."
        ),
        examples="""
        splitplane lease ssh train-1
        splitplane lease ssh train-1 -- nvidia-smi -L
        splitplane lease ssh train-1 --print
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument("-i", "--identity", metavar="FILE", help="the private key to use")
    parser.add_argument(
        "-A", "--forward-agent", action="store_true", help="forward your SSH agent to the machine"
    )
    parser.add_argument(
        "--print", dest="print_only", action="store_true", help="print the ssh command, do not run it"
    )
    parser.set_defaults(remote=[])
    parser.usage = "splitplane lease ssh [options] LEASE [-- COMMAND ...]"


# create and watch


def create(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    request = LeaseRequest(
        sku=args.sku,
        regions=tuple(args.region),
        providers=tuple(args.provider),
        price_usd_per_hour_max=ceiling(args),
        name=args.name,
        project=args.project,
        ssh_key_ids=tuple(_key_ids(client, args)),
    )
    answer = client.post("/v1/leases", LeaseView, request)
    lease = answer.value
    terminal.note(f"{lease.id} is admitted at {price(lease.price_per_hour)} USD per hour.")
    if args.no_wait:
        terminal.present(args.json, answer, lambda lease: lease_page(lease, terminal.now()))
        return
    end = _watched(terminal, client, [answer], progress.is_decided)[lease.id]
    if isinstance(end, CliError):
        raise end
    terminal.present(args.json, end, lambda lease: lease_page(lease, terminal.now()))
    if not progress.is_ready(end.value):
        raise _failure(end.value)


def _key_ids(client: Client, args: Namespace) -> list[str]:
    if args.no_ssh_key:
        if args.ssh_key:
            raise usage("--ssh-key and --no-ssh-key cannot be combined.")
        return []
    if args.ssh_key:
        return [key.id for key in ssh_keys.find(client, args.ssh_key)]
    keys = client.get(ssh_keys.PATH, SshKeyList).value.items
    if not keys:
        raise CliError(
            "You have no SSH key, so nobody could log in; run: splitplane ssh-key add laptop (or use --no-ssh-key).",
            code="no_ssh_key",
        )
    return [key.id for key in keys]


def _failure(lease: LeaseView) -> CliError:
    reason = lease.end_reason or lease.status.phase
    why = sentence(lease.end_why or lease.status.message)
    return CliError(f"{lease.name}: {why} For details, run: splitplane why {lease.id}", code=reason)


def _watched(
    terminal: Terminal, client: Client, leases: list[Found], settled: progress.Settled
) -> dict[str, End]:
    """Watch the leases. Progress goes to standard error, because standard output carries the answer."""
    board = progress.board(terminal.err, leases, terminal.now)
    try:
        return dict(progress.watch(client, leases, settled, board))
    except KeyboardInterrupt:
        names = " ".join(lease.value.id for lease in leases)
        terminal.note(
            f"The lease continues. To watch it: splitplane lease watch {names}\n"
            f"To end it: splitplane lease release {names}"
            if len(leases) == 1
            else "The leases continue."
        )
        raise


def watch(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    leases = find(client, args.leases)
    settled = {"ready": progress.is_decided, "ended": progress.is_ended, None: _settled_by_itself(leases)}[
        args.until
    ]
    ends = _watched(terminal, client, leases, settled)
    _present_many(terminal, args, ends)
    if args.until == "ended":
        return
    for end in ends.values():
        if not isinstance(end, CliError) and _failed(end.value, leases):
            raise _failure(end.value)


def _settled_by_itself(leases: list[Found]) -> progress.Settled:
    """Ready for a lease that comes up; ended for one that was ending when the watch began."""
    ending = {lease.value.id for lease in leases if lease.value.status.phase == "ending"}
    return lambda lease: progress.is_ended(lease) if lease.id in ending else progress.is_decided(lease)


def _failed(end: LeaseView, before: list[Found]) -> bool:
    """Whether a lease that was coming up did not get ready."""
    first = next(lease.value for lease in before if lease.value.id == end.id)
    return first.status.phase in ("pending", "starting") and not progress.is_ready(end)


def _present_many(terminal: Terminal, args: Namespace, ends: dict[str, End]) -> None:
    """Show how each ended. The first error is raised after everything was shown."""
    troubles = [end for end in ends.values() if isinstance(end, CliError)]
    leases = [end for end in ends.values() if not isinstance(end, CliError)]
    page = Answer(
        {"items": [lease.content for lease in leases], "next_cursor": None},
        LeasePage(tuple(lease.value for lease in leases), None),
    )
    terminal.present(args.json, page, lambda page: lease_table(page.items, terminal.now(), all_states=True))
    for trouble in troubles[1:]:
        terminal.note(trouble.sentence)
    if troubles:
        raise troubles[0]


# list, show, why


def list_leases(terminal: Terminal, args: Namespace) -> None:
    params: dict[str, Any] = {}
    if args.state:
        params["state"] = args.state
    elif not args.all:
        params["state"] = list(LIVE_STATES)
    if args.project:
        params["project"] = args.project
    answer = terminal.client().every("/v1/leases", LeasePage, params)
    all_states = args.all or bool(args.state)
    terminal.present(
        args.json, answer, lambda page: lease_table(page.items, terminal.now(), all_states=all_states)
    )


def show(terminal: Terminal, args: Namespace) -> None:
    answer = find(terminal.client(), [args.lease])[0]
    terminal.present(args.json, answer, lambda lease: lease_page(lease, terminal.now()))


def why(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    answer = client.get(f"/v1/leases/{lease.id}/explanation", ExplanationView)
    terminal.present(args.json, answer, lambda explanation: explanation_page(explanation, terminal.now()))


# ssh


def connect(terminal: Terminal, args: Namespace) -> None:
    lease = find(terminal.client(), [args.lease])[0].value
    line = _ssh_command(terminal, lease, args)
    if args.json:
        terminal.json({"lease": lease.id, "command": line})
    elif args.print_only:
        terminal.stdout.write(ssh.shell_line(line) + "\n")
    else:
        terminal.become(line)


def _ssh_command(terminal: Terminal, lease: LeaseView, args: Namespace) -> list[str]:
    machine = lease.machine
    if not progress.is_ready(lease):
        phase = lease.status.phase
        hint = "" if phase in ("ending", "ended") else f" To wait for it: splitplane lease watch {lease.id}"
        raise CliError(f"{lease.name} is {phase}, not ready.{hint}", code="not_ready")
    if machine is None or not machine.address:
        raise CliError(f"The address of the machine of {lease.name} is not known yet.", code="no_address")
    if not machine.host_key:
        raise CliError(
            f"The host key of {lease.name} is not known, so its machine cannot be verified;"
            " no connection is made.",
            code="no_host_key",
        )
    return ssh.command(
        address=machine.address,
        port=machine.ssh_port,
        user=machine.ssh_user,
        alias=machine.machine_id,
        known_hosts=ssh.pin(terminal.environ, machine.machine_id, machine.host_key),
        identity=args.identity,
        forward_agent=args.forward_agent,
        remote=args.remote,
    )


# release


def release(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    leases = find(client, args.leases)
    running = [lease.cleaned() for lease in leases if lease.value.status.phase not in ("ending", "ended")]
    if running and not args.yes:
        for lease in running:
            per_hour = f"{price(lease.price_per_hour)} USD per hour"
            terminal.err.print(f"  {lease.name}  {lease.id}  {spaced(lease.status.phase)}, {per_hour}")
        terminal.confirm(
            f"Release {plural(len(running), 'lease')}? The data on the machines is lost.", otherwise="--yes"
        )
    ends: dict[str, End] = {lease.value.id: _released(client, lease.value) for lease in leases}
    if args.wait:
        released = [end for end in ends.values() if not isinstance(end, CliError)]
        ends |= _watched(terminal, client, released, progress.is_ended)
    _present_many(terminal, args, ends)


def _released(client: Client, lease: LeaseView) -> End:
    """The lease after its release, or the error: one that cannot be released must not stop the others."""
    try:
        return client.post(f"/v1/leases/{lease.id}/release", LeaseView)
    except CliError as error:
        return error
