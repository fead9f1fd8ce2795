"""Roles: who may do what where."""

from argparse import Namespace

import msgspec

from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import find, find_subject, named
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.names import Names
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.roles import role_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.environments import EnvironmentPage
from control_plane.wire.roles import RoleBindingPage, RoleBindingRequest, RoleBindingView

PATH = "/v1/role-bindings"
ROLES = ("owner", "admin", "member", "viewer", "finance", "operator", "auditor")
SUBJECT_HELP = "a user by its email address, a service account by its name, or an id"


def add(to: Commands) -> None:
    roles = noun(to, "role", "Grant, list and end roles, which say who may do what where.")
    parser = command(
        roles,
        "grant",
        grant,
        "Grant a role to a user or a service account.",
        more=(
            "By default it is for the whole organization. You can grant no more than you may\n"
            "do yourself, and nothing to yourself."
        ),
        examples="""
        splitplane role grant viewer ada@example.com
        splitplane role grant member ci-runner --project research
        splitplane role grant member ci-runner --project research --environment dev
        splitplane role grant viewer auditor@example.com --lease train-1
        """,
    )
    parser.add_argument("role", metavar="ROLE", choices=ROLES, help=", ".join(ROLES))
    parser.add_argument("subject", metavar="SUBJECT", help=SUBJECT_HELP)
    parser.add_argument("--project", metavar="PROJECT", help="only in this project, by its name or id")
    parser.add_argument("--environment", metavar="NAME", help="only in this environment of the project")
    parser.add_argument("--lease", metavar="LEASE", help="only for this lease, by its name or id")
    parser.add_argument(
        "--platform", action="store_true", help="for the whole installation (operators, auditors, finance)"
    )
    parser = command(
        roles,
        "list",
        list_roles,
        "List who has which role where.",
        examples="""
        splitplane role list
        splitplane role list ada@example.com
        """,
    )
    parser.add_argument("subject", metavar="SUBJECT", nargs="?", help=SUBJECT_HELP)
    parser = command(
        roles,
        "revoke",
        revoke,
        "End a role. It counts at once.",
        examples="splitplane role revoke rb_0190c2f0 --yes",
    )
    parser.add_argument("binding", metavar="ROLE_BINDING", help="its id, or the beginning of it")
    add_yes(parser)


def grant(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    content = {
        "subject": find_subject(client, args.subject),
        "role": args.role,
        "scope": _scope(client, args),
    }
    try:
        request = msgspec.convert(content, RoleBindingRequest)
    except msgspec.ValidationError as error:
        raise usage(f"{error}.") from None
    answer = client.post(PATH, RoleBindingView, request)
    terminal.present(args.json, answer, lambda binding: role_table([binding], Names(client), terminal.now()))


def _scope(client: Client, args: Namespace) -> dict[str, str]:
    if sum((bool(args.platform), bool(args.lease), bool(args.project))) > 1:
        raise usage("A role has one scope: --platform, --lease, or --project with or without --environment.")
    if args.platform:
        return {"kind": "platform"}
    if args.lease:
        [lease] = find(client, [args.lease])
        return {"kind": "lease", "id": lease.value.id}
    if args.environment:
        if not args.project:
            raise usage("--environment needs the --project that it belongs to.")
        return {"kind": "environment", "id": _environment(client, args.project, args.environment)}
    return {"kind": "project", "id": args.project} if args.project else {"kind": "organization"}


def _environment(client: Client, project: str, word: str) -> str:
    known = client.every(f"/v1/projects/{project}/environments", EnvironmentPage).value.items
    found = named(known, word)
    if len(found) == 1:
        return found[0].id
    names = ", ".join(environment.name for environment in known)
    raise CliError(
        f"There is no environment {word!r} in the project {project!r}. It has: {names}.",
        code="environment_unknown",
    )


def list_roles(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    query = {} if args.subject is None else {"subject": find_subject(client, args.subject)}
    answer = client.every(PATH, RoleBindingPage, query)
    terminal.present(args.json, answer, lambda page: role_table(page.items, Names(client), terminal.now()))


def revoke(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    known = client.every(PATH, RoleBindingPage).value.items
    found = [binding for binding in known if binding.id.startswith(args.binding)]
    if len(found) != 1 or len(args.binding) <= len("rb_"):
        raise CliError(
            f"{args.binding!r} is the id of {len(found) or 'no'} role binding{'s' if len(found) > 1 else ''}."
            " See: splitplane role list",
            code="role_binding_unknown",
        )
    [binding] = found
    names = Names(client)
    what = f"{binding.role} of {names.subject(binding.subject) or binding.subject} ({names.scope(binding.scope)})"
    confirm(terminal, args, f"End the role {what}?")
    client.delete(f"{PATH}/{binding.id}")
    terminal.done(args.json, "revoked", binding.id, f"Ended {what}.")
