"""Projects, among which an organization divides its leases and their costs."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.projects import project_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.projects import ProjectPage, ProjectRequest, ProjectView

PATH = "/v1/projects"


def add(to: Commands) -> None:
    projects = noun(to, "project", "Create and list projects, which divide your leases and their costs.")
    parser = command(
        projects,
        "create",
        create,
        "Create a project.",
        more=(
            "A lease belongs to one project from its creation on; its usage and its line of\n"
            "the bill name the project."
        ),
        examples="""
        splitplane project create research
        splitplane lease create h100-sxm.1x --project research
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique in your organization")
    command(
        projects,
        "list",
        list_projects,
        "List your projects, oldest first.",
        more="Leases that name no project belong to the one called default.",
        examples="splitplane project list",
    )


def create(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(PATH, ProjectView, ProjectRequest(args.name))
    terminal.present(args.json, answer, lambda project: project_table([project], terminal.now()))


def list_projects(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, ProjectPage)
    terminal.present(args.json, answer, lambda page: project_table(page.items, terminal.now()))
