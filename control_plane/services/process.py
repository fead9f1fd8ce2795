"""Worlds for processes, so that the process that listens to the internet names no database class."""

from control_plane.db.engine import Database, Role
from control_plane.world import World


def api_world(url: str, *, connections: int) -> World:
    """The world of the API, in whose role the database filters every tenant table."""
    return World(Database(url, role=Role.API, pool_size=connections, readers=connections))


def owner_world(url: str) -> World:
    """The world of the administrator's commands, in the role of the login, which sees every tenant."""
    return World(Database(url, role=None, pool_size=1, readers=1))
