"""The names that people know instead of ids: of users, service accounts, projects, environments and leases.

They are looked up when something is drawn for a person, once per command. What cannot be read stays an id.
"""

from collections.abc import Callable, Iterable
from functools import cached_property

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import is_id
from control_plane.wire.environments import EnvironmentPage
from control_plane.wire.leases import LeaseView
from control_plane.wire.projects import ProjectPage
from control_plane.wire.roles import ScopeView
from control_plane.wire.subjects import ServiceAccountPage, UserPage


class Names:
    """Names by ids, of what one login may see."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._environments: dict[str, dict[str, str]] = {}

    def subject(self, subject: str) -> str | None:
        """A user's email address, or a service account's name; None when it may not be read."""
        known = self._users if subject.startswith("user_") else self._accounts
        return known.get(subject)

    def scope(self, scope: ScopeView) -> str:
        """Where a role applies, such as `organization`, `project research` or `environment research/dev`."""
        if scope.project_id is None:
            return str(scope.kind)
        if scope.lease_id is not None:
            return f"lease {self._lease(scope.lease_id)}"
        project = self._projects.get(scope.project_id, scope.project_id)
        if scope.environment_id is None:
            return f"project {project}"
        return f"environment {project}/{self._environment(scope.project_id, scope.environment_id)}"

    @cached_property
    def _users(self) -> dict[str, str]:
        return _readable(
            lambda: (
                (user.id, user.email) for user in self._client.every("/v1/users", UserPage).cleaned().items
            )
        )

    @cached_property
    def _accounts(self) -> dict[str, str]:
        path = "/v1/service-accounts"
        return _readable(
            lambda: (
                (found.id, found.name)
                for found in self._client.every(path, ServiceAccountPage).cleaned().items
            )
        )

    @cached_property
    def _projects(self) -> dict[str, str]:
        return _readable(
            lambda: (
                (found.id, found.name)
                for found in self._client.every("/v1/projects", ProjectPage).cleaned().items
            )
        )

    def _environment(self, project_id: str, environment_id: str) -> str:
        path = f"/v1/projects/{project_id}/environments"
        if project_id not in self._environments and is_id("prj", project_id):
            self._environments[project_id] = _readable(
                lambda: (
                    (found.id, found.name)
                    for found in self._client.every(path, EnvironmentPage).cleaned().items
                )
            )
        return self._environments.get(project_id, {}).get(environment_id, environment_id)

    def _lease(self, lease_id: str) -> str:
        if not is_id("le", lease_id):
            return lease_id
        known = _readable(
            lambda: [(lease_id, self._client.get(f"/v1/leases/{lease_id}", LeaseView).cleaned().name)]
        )
        return known.get(lease_id, lease_id)


def _readable(look: Callable[[], Iterable[tuple[str, str]]]) -> dict[str, str]:
    """What a look-up finds. One that fails finds nothing: what it would help to show was asked for and is there."""
    try:
        return dict(look())
    except CliError:
        return {}
