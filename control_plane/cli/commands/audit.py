"""The audit log: what was asked, allowed, refused and done, and whether an export of it is whole."""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from control_plane.cli.answers import Answer
from control_plane.cli.audit_chain import Fault, Verifier, Whole
from control_plane.cli.client import Client
from control_plane.cli.commands.billing import parse_time
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.audit import event_table, whole_lines
from control_plane.cli.terminal import Terminal
from control_plane.wire.audit import AuditEventPage

PATH = "/v1/audit-events"
EVERY_PATH = "/v1/operator/audit-events"
LIMIT_DEFAULT = 20
KEY_LENGTH = 64
LIMIT_MAX = 200
_FILTERS = ("event", "outcome", "subject", "target")


def add(to: Commands) -> None:
    audit = noun(to, "audit", "Read, export and check the audit log of your organization.")
    _add_list(audit)
    _add_export(audit)
    _add_verify(audit)


def _add_list(to: Commands) -> None:
    parser = command(
        to,
        "list",
        list_events,
        "List lines of the audit log, newest first.",
        more="Times are UTC: 2026-11-01, 2026-11-01T12:00:00Z, or an age such as 24h, 7d.",
        examples="""
        splitplane audit list --outcome refused --since 24h
        splitplane audit list --target le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        splitplane audit list --chain platform
        """,
    )
    parser.add_argument("--since", metavar="TIME", help="only what happened then or later")
    parser.add_argument("--until", metavar="TIME", help="only what happened before")
    parser.add_argument("--event", metavar="EVENT", help="such as leases.create")
    parser.add_argument("--outcome", choices=("allowed", "refused", "failed"), help="what came of it")
    parser.add_argument("--subject", metavar="ID", help="who acted, or with which API key")
    parser.add_argument("--target", metavar="ID", help="what it was about, such as a lease")
    parser.add_argument(
        "--limit", type=int, default=LIMIT_DEFAULT, metavar="N", help="how many, at most 200 (default: 20)"
    )
    _add_chain(parser)


def _add_chain(parser: Commands) -> None:
    parser.add_argument(
        "--chain", metavar="CHAIN", help="an organization's id, or platform (operators and auditors)"
    )


def _add_export(to: Commands) -> None:
    parser = command(
        to,
        "export",
        export,
        "Write the whole chain as JSON lines, one line for each event.",
        more=(
            "The export begins and ends with a line about the chain. Check it with\n"
            "splitplane audit verify, on any machine and without the API."
        ),
        examples="""
        splitplane audit export --output audit.jsonl
        splitplane audit export --after 48213 > newer.jsonl
        """,
    )
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: standard output)")
    parser.add_argument("--after", type=int, default=0, metavar="N", help="only the lines after line N")
    _add_chain(parser)


def _add_verify(to: Commands) -> None:
    parser = command(
        to,
        "verify",
        verify,
        "Check that no line was changed, removed, inserted, moved or cut off.",
        more=(
            "Without a file, the chain is read from the API. It exits with 1 and names the\n"
            "first line that is wrong. Checkpoints in it are signed, and their signatures\n"
            "are checked. Whoever may write everywhere could rewrite a chain and sign it with\n"
            "another key: --key and --head compare it with what you kept elsewhere."
        ),
        examples="""
        splitplane audit verify
        splitplane audit verify audit.jsonl
        splitplane audit verify audit.jsonl --head 48213:9f86d081...
        splitplane audit verify audit.jsonl --key 3f2a9c...
        """,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="an export (default: from the API)")
    parser.add_argument("--head", metavar="N:HASH", help="the place and the hash of a line that you know")
    parser.add_argument("--key", metavar="KEY", help="the key that has to have signed it, of 64 digits")
    _add_chain(parser)


def list_events(terminal: Terminal, args: Namespace) -> None:
    if not 1 <= args.limit <= LIMIT_MAX:
        raise usage(f"--limit: {args.limit} is not between 1 and {LIMIT_MAX}.")
    wanted = {name: getattr(args, name) for name in _FILTERS if getattr(args, name) is not None}
    now = terminal.now()
    for flag in ("since", "until"):
        text = getattr(args, flag)
        if text is not None:
            at = parse_time(text, now, flag=f"--{flag}")
            wanted[flag] = at.isoformat().replace("+00:00", "Z")
    path, chain = _path(args)
    answer = terminal.client().get(path, AuditEventPage, {**wanted, **chain, "limit": args.limit})
    terminal.present(args.json, answer, lambda page: event_table(page.items))


def _path(args: Namespace) -> tuple[str, dict[str, str]]:
    return (PATH, {}) if args.chain is None else (EVERY_PATH, {"chain": args.chain})


def export(terminal: Terminal, args: Namespace) -> None:
    if args.output is None:
        for line in _exported(terminal.client(), args, args.after):
            terminal.write(line.decode())
        return
    last = b""
    try:
        with Path(args.output).open("wb") as file:
            for line in _exported(terminal.client(), args, args.after):
                file.write(line)
                last = line
    except OSError as error:
        raise CliError(f"{args.output}: {error.strerror}.", code="file") from error
    end = _end(last)
    if args.json:
        terminal.json({"output": args.output, "after": args.after, "sequence": end})
        return
    terminal.note(f"Wrote lines {args.after + 1:,} to {end:,} to {args.output}.")
    terminal.note(f"Check them with: splitplane audit verify {args.output}")


def _end(last: bytes) -> int:
    """The number of the chain's last line, which the last line of a whole export names."""
    try:
        content = json.loads(last)
        if content["kind"] == "end":
            return int(content["sequence"])
    except (ValueError, KeyError, TypeError):
        pass
    raise CliError(
        "The API ended before the export was complete; run the command again.", code="export_incomplete"
    )


def _exported(client: Client, args: Namespace, after: int) -> Iterator[bytes]:
    path, chain = _path(args)
    return client.lines(f"{path}/export", {**chain, "after": after})


def verify(terminal: Terminal, args: Namespace) -> None:
    verifier = Verifier(None if args.head is None else _head(args.head), _key(args.key))
    if args.file is None:
        found = _check(verifier, _exported(terminal.client(), args, 0))
    else:
        try:
            with Path(args.file).open("rb") as file:
                found = _check(verifier, file)
        except OSError as error:
            raise CliError(f"{args.file}: {error.strerror}.", code="file") from error
    if isinstance(found, Fault):
        raise CliError(f"The audit log is not whole: line {found.line}: {found.why}.", code="audit_broken")
    terminal.present(args.json, Answer(asdict(found), found), whole_lines)


def _check(verifier: Verifier, lines: Iterable[bytes]) -> Whole | Fault:
    for line in lines:
        fault = verifier.take(line)
        if fault is not None:
            return fault
    return verifier.end()


def _key(text: str | None) -> str | None:
    if text is not None and (len(text) != KEY_LENGTH or not set(text.lower()) <= set("0123456789abcdef")):
        raise usage(f"--key: {text!r} is not the name of a key, of {KEY_LENGTH} hexadecimal digits.")
    return None if text is None else text.lower()


def _head(text: str) -> tuple[int, str]:
    place, _, digest = text.partition(":")
    if not (place.isascii() and place.isdigit()) or len(digest) != 64:
        raise usage(f"--head: {text!r} is not the number of a line, a colon, and its hash of 64 digits.")
    return int(place), digest.lower()
