"""Agents on machines. They need the permission `agents.read`."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.agents import agent_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.agents import AgentPage

PATH = "/v1/operator/agents"


def add(to: Commands) -> None:
    agents = noun(to, "agent", "Show what the agents on machines reported (operators).")
    parser = command(
        agents,
        "list",
        list_agents,
        "List the agents on machines with a customer, and their last reports.",
        more=(
            "An agent is silent when it reported before and has not for five minutes. That\n"
            "is no proof that its machine failed, and nothing is decided by it: what an\n"
            "agent says, the owner of the machine can change."
        ),
        examples="""
        splitplane agent list
        splitplane agent list --silent
        """,
    )
    parser.add_argument(
        "--silent", action="store_true", help="only those that reported before, and do not now"
    )


def list_agents(terminal: Terminal, args: Namespace) -> None:
    query = {"silent": "true"} if args.silent else {}
    answer = terminal.client().whole(PATH, AgentPage, query)
    terminal.present(args.json, answer, lambda page: agent_table(page.items))
