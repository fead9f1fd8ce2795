"""Finds an organization by what an operator types: its name, its id, or the beginning of one."""

from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import named
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import suggestion
from control_plane.wire.organizations import OrganizationPage, OrganizationView

PATH = "/v1/operator/organizations"
ORGANIZATION_HELP = "name, or the beginning of its id"


def names_of(client: Client) -> dict[str, str]:
    """The names of all organizations, by their ids."""
    return {each.id: each.name for each in client.every(PATH, OrganizationPage).value.items}


def find(client: Client, word: str) -> OrganizationView:
    """The organization with this name or id."""
    known = client.every(PATH, OrganizationPage).value.items
    found = named(known, word)
    if len(found) > 1:
        raise CliError(f"{word!r} is the beginning of {len(found)} ids; write more of it.", code="ambiguous")
    if found:
        return found[0]
    near = suggestion(word, (organization.name for organization in known))
    raise CliError(
        f"There is no organization {word!r}.{near}",
        code="organization_unknown",
    )
