"""The built-in roles and their permissions."""

import re

from control_plane.domain.permission import CUSTOMER, OPERATOR, PERMISSIONS, Permission, Role


def test_every_role_has_its_permissions() -> None:
    assert PERMISSIONS.keys() == set(Role)


def test_an_operator_has_every_permission_and_a_customer_none_over_others() -> None:
    assert frozenset(Permission) == OPERATOR
    assert CUSTOMER < OPERATOR
    assert {
        Permission.COSTS_READ,
        Permission.CREDITS_CREATE,
        Permission.ORGANIZATIONS_CREATE,
        Permission.API_KEYS_CREATE_OPERATOR,
    } <= OPERATOR - CUSTOMER


def test_a_permission_is_named_by_its_noun_and_its_action() -> None:
    for permission in Permission:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", permission)
        assert permission.name == permission.value.replace(".", "_").upper()
