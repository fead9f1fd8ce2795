"""Environments on the wire."""

from control_plane.domain.environment import Environment
from control_plane.domain.ids import Prefix, on_wire
from control_plane.wire.environments import EnvironmentView


def environment_view(environment: Environment) -> EnvironmentView:
    return EnvironmentView(
        id=on_wire(Prefix.ENVIRONMENT, environment.id),
        project_id=on_wire(Prefix.PROJECT, environment.project_id),
        name=environment.name,
        created_at=environment.created_at,
    )
