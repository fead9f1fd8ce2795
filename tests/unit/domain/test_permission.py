"""The built-in roles and their permissions."""

import re
from itertools import pairwise

from control_plane.domain.permission import EVERYBODYS, NARROWEST, Permission
from control_plane.domain.role import Role
from control_plane.domain.role_permissions import (
    ADMIN,
    AT_PLATFORM,
    AUDITOR,
    FINANCE,
    IN_ORGANIZATIONS,
    MEMBER,
    OPERATOR,
    OWNER,
    PLATFORM_FINANCE,
    VIEWER,
    permissions_of,
    roles_at,
)
from control_plane.domain.scope import WIDEST_FIRST, ScopeKind

_P = Permission
READS = frozenset(permission for permission in Permission if ".read" in permission)
OF_MONEY = frozenset({_P.LEDGER_POST})
OF_MACHINES = frozenset({_P.LEASES_CREATE, _P.LEASES_RELEASE, _P.ORPHANS_DECIDE, _P.TERMINATIONS_PERMIT})


def test_every_role_can_be_bound_somewhere() -> None:
    assert IN_ORGANIZATIONS.keys() | AT_PLATFORM.keys() == set(Role)


def test_every_permission_is_given_by_a_role() -> None:
    given = frozenset().union(*IN_ORGANIZATIONS.values(), *AT_PLATFORM.values())
    assert given | EVERYBODYS == frozenset(Permission)
    assert NARROWEST.keys() == frozenset(Permission) - EVERYBODYS


def test_the_roles_of_customers_grow_towards_the_owner() -> None:
    assert VIEWER < MEMBER < ADMIN < OWNER
    assert FINANCE < ADMIN


def test_who_runs_machines_posts_no_money_and_who_posts_money_touches_no_machine() -> None:
    assert not OPERATOR & OF_MONEY
    assert not PLATFORM_FINANCE & OF_MACHINES
    assert OF_MONEY <= PLATFORM_FINANCE


def test_an_auditor_reads_everything_of_the_platform_and_writes_nothing() -> None:
    of_platform = {name for name, kind in NARROWEST.items() if kind is ScopeKind.PLATFORM}
    assert AUDITOR <= READS
    assert (READS & of_platform) <= AUDITOR


def test_no_role_of_a_customer_has_a_permission_of_the_platform() -> None:
    for role, permissions in IN_ORGANIZATIONS.items():
        assert not {name for name in permissions if NARROWEST[name] is ScopeKind.PLATFORM}, role


def test_a_narrower_scope_never_gives_more() -> None:
    kinds = [kind for kind in WIDEST_FIRST if kind is not ScopeKind.PLATFORM]
    for role in IN_ORGANIZATIONS:
        for wider, narrower in pairwise(kinds):
            assert permissions_of(role, narrower) <= permissions_of(role, wider), (role, narrower)


def test_a_role_gives_nothing_at_a_scope_where_it_cannot_be_bound() -> None:
    for role in Role:
        for kind in ScopeKind:
            assert bool(permissions_of(role, kind)) is (role in roles_at(kind)), (role, kind)


def test_a_permission_is_named_by_its_noun_and_its_action() -> None:
    for permission in Permission:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", permission)
        assert permission.name == permission.value.replace(".", "_").upper()


def test_whoever_may_write_in_a_cluster_may_manage_node_pools_as_well() -> None:
    """NodePool objects spend as node pools do, and a kubeconfig writes them."""
    for role in Role:
        held = permissions_of(role, ScopeKind.PROJECT)
        assert _P.KUBECONFIGS_CREATE not in held or _P.NODE_POOLS_MANAGE in held, role
