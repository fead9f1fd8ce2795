"""Makes the worlds of the API process and of the administrator's commands, so that they name no database class."""

from control_plane.db.engine import Database, Role
from control_plane.world import World


def api_world(url: str, *, connections: int) -> World:
    """The world of the API. For its role, the database filters every tenant table."""
    return World(Database(url, role=Role.API, pool_size=connections, readers=connections))


def owner_world(url: str) -> World:
    """The world of the administrator's commands. They use the role of the login, which sees every tenant."""
    return World(Database(url, role=None, pool_size=1, readers=1))
