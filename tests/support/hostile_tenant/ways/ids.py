"""Ids of another tenant in paths: an endpoint that looks a row up by its id could forget whose it is."""

from typing import Any

from tests.support.hostile_tenant.way import Call, Way, by_call

_LIMITS = {"gpus": 12}
"""More than what is leased here, and no more than the operator allows."""


def _way(
    name: str,
    event: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    why: str,
    code: str = "not_found",
    own: str | None = None,
) -> Way:
    control = None if own is None else Call(method, own, body)
    return by_call(name, why, Call(method, path, body), refused=code, event=event, control=control)


def _lease(name: str, event: str, method: str, path: str, body: Any = None, *, why: str) -> Way:
    return _way(name, event, method, path, body, why=why, code="lease_not_found")


WAYS = (
    _lease("read a lease", "leases.read", "GET", "/v1/leases/{lease}", why="looked up by its id"),
    _lease(
        "change a lease",
        "leases.update",
        "PATCH",
        "/v1/leases/{lease}",
        {"auto_release": {"after_seconds": 86_400}},
        why="the row is locked by its id before it is changed",
    ),
    _lease(
        "replace the labels of a lease",
        "leases.label",
        "PUT",
        "/v1/leases/{lease}/labels",
        {"labels": {"team": "mine"}},
        why="an update in one statement, without a look before it",
    ),
    _lease(
        "read why a lease waits",
        "leases.read",
        "GET",
        "/v1/leases/{lease}/explanation",
        why="it joins rows of placement, which belong to no tenant",
    ),
    _lease(
        "read the journal of a lease",
        "leases.read",
        "GET",
        "/v1/leases/{lease}/journal",
        why="read by the lease's id, in a table of its own",
    ),
    _lease(
        "read the proofs of a lease",
        "proofs.read",
        "GET",
        "/v1/leases/{lease}/proofs",
        why="read by the lease's id, in a table of its own",
    ),
    _lease(
        "follow the events of a lease",
        "leases.read",
        "GET",
        "/v1/leases/{released lease}/events?until=ready",
        why="streams are woken by notifications of every tenant's leases",
    ),
    _lease(
        "release a lease",
        "leases.release",
        "POST",
        "/v1/leases/{second lease}/release",
        why="a release is idempotent and could be made without a look at the row",
    ),
    _lease(
        "reboot the machine of a lease",
        "leases.power",
        "POST",
        "/v1/leases/{lease}/reboot",
        why="what is stored belongs to a claim, which is looked up by the lease's id",
    ),
    _way(
        "delete an SSH key",
        "ssh_keys.delete",
        "DELETE",
        "/v1/ssh-keys/{second ssh key}",
        why="a delete in one statement, without a look before it",
    ),
    _way(
        "rotate an API key",
        "api_keys.create",
        "POST",
        "/v1/api-keys/{key}/rotations",
        {"overlap_hours": 1},
        why="the answer would be a secret of the other tenant",
    ),
    _way(
        "revoke an API key",
        "api_keys.revoke",
        "DELETE",
        "/v1/api-keys/{second key}",
        why="it would lock the other tenant out",
    ),
    _way("read a user", "users.read", "GET", "/v1/users/{user}", why="looked up by its id"),
    _way(
        "suspend a user",
        "users.suspend",
        "POST",
        "/v1/users/{user}/suspend",
        why="a move of a state by the row's id",
    ),
    _way("resume a user", "users.suspend", "POST", "/v1/users/{user}/resume", why="as above, backwards"),
    _way(
        "remove a user",
        "users.remove",
        "DELETE",
        "/v1/users/{second user}",
        why="a removal takes keys, sessions and role bindings with it",
    ),
    _way(
        "read a service account",
        "service_accounts.read",
        "GET",
        "/v1/service-accounts/{account}",
        why="looked up by its id",
    ),
    _way(
        "suspend a service account",
        "service_accounts.suspend",
        "POST",
        "/v1/service-accounts/{account}/suspend",
        why="a move of a state by the row's id",
    ),
    _way(
        "remove a service account",
        "service_accounts.remove",
        "DELETE",
        "/v1/service-accounts/{second account}",
        why="a removal takes keys and role bindings with it",
    ),
    _way(
        "end a role binding",
        "role_bindings.delete",
        "DELETE",
        "/v1/role-bindings/{binding}",
        why="a delete in one statement, without a look before it",
    ),
    _way("read a project", "projects.read", "GET", "/v1/projects/{project}", why="looked up by id or name"),
    _way(
        "read a project by its name",
        "projects.read",
        "GET",
        "/v1/projects/{project name}",
        why="names are unique within an organization only, so a look-up by name needs its filter",
    ),
    _way(
        "read the environments of a project",
        "environments.read",
        "GET",
        "/v1/projects/{project}/environments",
        why="a list below a thing has to look whose thing it is",
    ),
    _way(
        "make an environment in a project",
        "environments.create",
        "POST",
        "/v1/projects/{project}/environments",
        {"name": "mine"},
        why="an insert that only a foreign key could refuse",
    ),
    _way(
        "read the envelope of a project",
        "envelopes.read",
        "GET",
        "/v1/projects/{project}/envelope",
        why="where none is set, the answer is built without a row",
    ),
    _way(
        "set the envelope of a project",
        "envelopes.set",
        "PUT",
        "/v1/projects/{project}/envelope",
        _LIMITS,
        why="an insert or update in one statement",
    ),
    _way(
        "set the envelope of an environment",
        "envelopes.set",
        "PUT",
        "/v1/projects/{project}/environments/{environment name}/envelope",
        _LIMITS,
        why="two names in one path, each of which needs its filter",
    ),
    by_call(
        "set the envelope of another one's environment below an own project",
        "the project is the attacker's, and the environment is looked up by its id alone",
        Call("PUT", "/v1/projects/default/environments/{environment}/envelope", _LIMITS),
        refused="not_found",
        event="envelopes.set",
        control=Call("PUT", "/v1/projects/{project}/environments/{environment}/envelope", _LIMITS),
    ),
    _way(
        "read a quota request",
        "quota_requests.read",
        "GET",
        "/v1/quota-requests/{quota request}",
        why="operators read those of every organization by the same service",
    ),
    _way(
        "withdraw a quota request",
        "quota_requests.create",
        "POST",
        "/v1/quota-requests/{quota request}/withdraw",
        why="whoever asked may withdraw, and the name of who asked is text in the row",
    ),
    _way(
        "rename a project",
        "projects.rename",
        "POST",
        "/v1/projects/{replayed project}/rename",
        {"name": "{marker} renamed"},
        why="an update by id; the name is unique within an organization",
    ),
)
