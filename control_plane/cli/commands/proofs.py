"""GPU proofs: those of a lease, one in full, and the record of every provider."""

from argparse import Namespace

from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import find
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.proofs import proof_page, proof_table, record_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.proofs import ProofPage, ProofRecordPage, ProofView

OUTCOMES = ("passed", "failed", "unanswered", "emulated")
RECORD_LIMIT = 50


def add(to: Commands) -> None:
    commands = noun(to, "proof", "Show what the GPUs of machines have proven.")
    parser = command(
        commands,
        "list",
        list_proofs,
        "List the GPU proofs of a lease, newest first.",
        examples="splitplane proof list train-1",
    )
    parser.add_argument("lease", metavar="LEASE", help="name, id, or the unambiguous beginning of an id")
    parser = command(
        commands,
        "show",
        show,
        "Show one GPU proof: memory, rates, limits, findings.",
        more="For a lease, it shows the latest proof. --json includes the evidence.",
        examples="""
        splitplane proof show train-1
        splitplane proof show pf_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d --json
        """,
    )
    parser.add_argument("proof", metavar="PROOF|LEASE", help="the id of a proof, or a lease")
    parser = command(
        commands,
        "record",
        record,
        f"Show the last {RECORD_LIMIT} proofs of all providers' machines (operators).",
        examples="""
        splitplane proof record
        splitplane proof record --account lambda_cloud --outcome failed
        """,
    )
    parser.add_argument("--account", help="only of this provider account")
    parser.add_argument("--outcome", choices=OUTCOMES, help="only proofs with this outcome")


def list_proofs(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    answer = client.every(f"/v1/leases/{lease.id}/proofs", ProofPage)
    terminal.present(args.json, answer, lambda page: proof_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    proof_id = args.proof if is_id("pf", args.proof) else _latest(client, args.proof)
    answer = client.get(f"/v1/proofs/{proof_id}", ProofView)  # The evidence is for --json only.
    terminal.present(args.json, answer, lambda proof: proof_page(proof, terminal.now()))


def _latest(client: Client, word: str) -> str:
    """The id of the latest proof of the lease that the word names."""
    lease = find(client, [word])[0].value
    if lease.proof.id is None:
        raise CliError(
            f"The machine of {lease.name} was not challenged. For the reason, run: splitplane why {lease.id}",
            code="no_proof",
        )
    return lease.proof.id


def record(terminal: Terminal, args: Namespace) -> None:
    filters = {"account": args.account, "outcome": args.outcome}
    params = {name: value for name, value in filters.items() if value is not None} | {"limit": RECORD_LIMIT}
    answer = terminal.client().get("/v1/operator/proofs", ProofRecordPage, params)
    terminal.present(args.json, answer, lambda page: record_table(page.items, terminal.now()))
