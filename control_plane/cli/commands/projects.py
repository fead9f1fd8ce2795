"""Projects, among which an organization divides its leases and their costs."""

from argparse import Namespace
from urllib.parse import quote

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.projects import project_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.projects import ProjectPage, ProjectRequest, ProjectView

PATH = "/v1/projects"


def add(to: Commands) -> None:
    projects = noun(
        to, "project", "Create, list and rename projects, which divide your leases and their costs."
    )
    parser = command(
        projects,
        "create",
        create,
        "Create a project.",
        more=(
            "A lease belongs to one project from its creation on; its usage and its line of\n"
            "the bill name the project. A project cannot be deleted, since bills refer to it."
        ),
        examples="""
        splitplane project create research
        splitplane lease create h100-sxm.1x --project research
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique in your organization; not prj_...")
    command(
        projects,
        "list",
        list_projects,
        "List your projects, oldest first.",
        more="Leases that name no project belong to the one called default.",
        examples="splitplane project list",
    )
    _add_show(projects)
    _add_rename(projects)


def _add_show(projects: Commands) -> None:
    parser = command(
        projects,
        "show",
        show,
        "Show one project.",
        examples="splitplane project show research",
    )
    parser.add_argument("project", metavar="PROJECT", help="its name or its id")


def _add_rename(projects: Commands) -> None:
    parser = command(
        projects,
        "rename",
        rename,
        "Rename a project.",
        more=(
            "The project keeps its id, its leases and their costs. Usage and bills show the\n"
            "new name, also for the time before. The project default keeps its name."
        ),
        examples="splitplane project rename research training",
    )
    parser.add_argument("project", metavar="PROJECT", help="its name or its id")
    parser.add_argument("name", metavar="NAME", help="the new name, unique in your organization")


def create(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(PATH, ProjectView, ProjectRequest(args.name))
    terminal.present(args.json, answer, lambda project: project_table([project], terminal.now()))


def list_projects(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, ProjectPage)
    terminal.present(args.json, answer, lambda page: project_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(_path(args.project), ProjectView)
    terminal.present(args.json, answer, lambda project: project_table([project], terminal.now()))


def rename(terminal: Terminal, args: Namespace) -> None:
    path = f"{_path(args.project)}/rename"
    answer = terminal.client().post(path, ProjectView, ProjectRequest(args.name))
    terminal.present(args.json, answer, lambda project: project_table([project], terminal.now()))


def _path(project: str) -> str:
    return f"{PATH}/{quote(project, safe='')}"
