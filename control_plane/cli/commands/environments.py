"""Environments, which divide a project."""

from argparse import ArgumentParser, Namespace
from urllib.parse import quote

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.environments import environment_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.environments import EnvironmentPage, EnvironmentRequest, EnvironmentView


def add(to: Commands) -> None:
    environments = noun(
        to, "environment", "Create and list environments, such as prod and dev, of a project."
    )
    parser = command(
        environments,
        "create",
        create,
        "Create an environment of a project.",
        more="A lease belongs to one environment of its project from its creation on.",
        examples="""
        splitplane environment create prod --project research
        splitplane lease create h100-sxm.1x --project research --environment prod
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique in the project; not env_...")
    _add_project(parser)
    parser = command(
        environments,
        "list",
        list_environments,
        "List the environments of a project, oldest first.",
        more="Leases that name no environment belong to the one called default.",
        examples="splitplane environment list --project research",
    )
    _add_project(parser)


def _add_project(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--project", default="default", metavar="PROJECT", help="its name or id (default: default)"
    )


def create(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(_path(args.project), EnvironmentView, EnvironmentRequest(args.name))
    terminal.present(args.json, answer, lambda made: environment_table([made], terminal.now()))


def list_environments(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(_path(args.project), EnvironmentPage)
    terminal.present(args.json, answer, lambda page: environment_table(page.items, terminal.now()))


def _path(project: str) -> str:
    return f"/v1/projects/{quote(project, safe='')}/environments"
