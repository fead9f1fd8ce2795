"""Worlds for processes, so that what listens to the internet never names a database class."""

from control_plane.db.engine import Database, Role
from control_plane.world import World


def api_world(url: str, *, connections: int) -> World:
    """The API's: the database filters every tenant table for its role."""
    return World(Database(url, role=Role.API, pool_size=connections, readers=connections))


def owner_world(url: str) -> World:
    """For admin commands: the login's own role, which sees every tenant."""
    return World(Database(url, role=None, pool_size=1, readers=1))
