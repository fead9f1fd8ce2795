"""The laws of access, over every role, permission and kind of scope."""

from collections.abc import Iterator
from itertools import combinations, product
from typing import TypeVar
from uuid import UUID

from control_plane.domain.access import (
    Allowed,
    Denied,
    Grant,
    HeldRole,
    Narrowing,
    Principal,
    Reach,
    decide,
    grants_of,
    reaches,
    separated,
)
from control_plane.domain.ids import (
    EnvironmentId,
    LeaseId,
    OrganizationId,
    ProjectId,
    RoleBindingId,
    ServiceAccountId,
)
from control_plane.domain.organization import OrganizationState
from control_plane.domain.permission import EVERYBODYS, NARROWEST, Permission
from control_plane.domain.role import Role
from control_plane.domain.role_permissions import permissions_of, roles_at
from control_plane.domain.scope import ORGANIZATION, PLATFORM, Scope, ScopeKind
from control_plane.domain.subject import Subject, SubjectKind

P, Q = ProjectId(UUID(int=1)), ProjectId(UUID(int=2))
PROD, DEV = EnvironmentId(UUID(int=11)), EnvironmentId(UUID(int=12))
IN_PROD, IN_DEV, IN_Q = (LeaseId(UUID(int=number)) for number in (21, 22, 23))
OF_Q = EnvironmentId(UUID(int=13))
PROJECT, OTHER = Scope(ScopeKind.PROJECT, P), Scope(ScopeKind.PROJECT, Q)
ENVIRONMENT = Scope(ScopeKind.ENVIRONMENT, P, PROD)
LEASE = Scope(ScopeKind.LEASE, P, PROD, IN_PROD)
NESTED = (PLATFORM, ORGANIZATION, PROJECT, ENVIRONMENT, LEASE)
"""Each lies in the one before it."""
THINGS = (
    *NESTED,
    OTHER,
    Scope(ScopeKind.ENVIRONMENT, P, DEV),
    Scope(ScopeKind.ENVIRONMENT, Q, OF_Q),
    Scope(ScopeKind.LEASE, P, DEV, IN_DEV),
    Scope(ScopeKind.LEASE, Q, OF_Q, IN_Q),
)
NARROWINGS = (
    Narrowing(),
    Narrowing(permissions=frozenset({Permission.LEASES_READ, Permission.ROLE_BINDINGS_CREATE})),
    Narrowing(projects=frozenset({P})),
    Narrowing(projects=frozenset({Q})),
    Narrowing(frozenset({Permission.LEASES_READ}), frozenset({P, Q})),
    Narrowing(frozenset(), None),
    Narrowing(None, frozenset()),
)
T = TypeVar("T")


def held(role: Role, scope: Scope, number: int = 1) -> HeldRole:
    return HeldRole(RoleBindingId(UUID(int=number)), role, scope)


def principal(*roles: HeldRole, narrowing: Narrowing = Narrowing(), platform: bool = False) -> Principal:  # noqa: B008 - frozen
    return Principal(
        organization_id=OrganizationId(UUID(int=0xA)),
        platform=platform,
        organization_state=OrganizationState.ACTIVE,
        subject=Subject(SubjectKind.SERVICE_ACCOUNT, ServiceAccountId(UUID(int=0x5A))),
        credential_id=UUID(int=0xC),
        credential_name="key_1",
        roles=roles,
        narrowing=narrowing,
    )


def bindable() -> Iterator[HeldRole]:
    """Every role at every kind of scope where it can be bound."""
    for scope in THINGS:
        for role in roles_at(scope.kind):
            yield held(role, scope)


def allowed(who: Principal) -> frozenset[tuple[Permission, Scope]]:
    """Every permission, with every thing for which this principal has it."""
    reaches = {permission: who.reach(permission) for permission in Permission}
    return frozenset(
        (permission, thing)
        for permission, thing in product(Permission, THINGS)
        if reaches[permission].contains(thing)
    )


def test_a_narrower_scope_never_allows_more() -> None:
    for narrow, wide in combinations(reversed(NESTED), 2):
        for role in set(roles_at(narrow.kind)) & set(roles_at(wide.kind)):
            if ScopeKind.PLATFORM in {narrow.kind, wide.kind}:
                continue  # `finance` is another role there.
            less, more = principal(held(role, narrow)), principal(held(role, wide))
            assert allowed(less) <= allowed(more), (role, narrow, wide)


def test_a_role_gives_nothing_in_a_scope_that_is_narrower_than_the_permission_allows() -> None:
    """So in a single project nobody invites users, or creates projects."""
    kinds = list(ScopeKind)
    for kind in ScopeKind:
        for role in roles_at(kind):
            for permission in permissions_of(role, kind):
                assert kinds.index(kind) <= kinds.index(NARROWEST[permission]), (role, kind, permission)
    assert Permission.USERS_INVITE in permissions_of(Role.ADMIN, ScopeKind.ORGANIZATION)
    assert Permission.USERS_INVITE not in permissions_of(Role.ADMIN, ScopeKind.PROJECT)


def test_more_roles_never_allow_less() -> None:
    alone = {role: allowed(principal(role, platform=True)) for role in bindable()}
    for one, other in combinations(alone, 2):
        both = allowed(principal(one, other, platform=True))
        assert both >= alone[one] | alone[other]


def test_a_credential_only_narrows() -> None:
    for role, narrowing in product(bindable(), NARROWINGS):
        whole, narrowed = principal(role, platform=True), principal(role, narrowing=narrowing, platform=True)
        assert allowed(narrowed) <= allowed(whole), (role, narrowing)
        if narrowing.permissions is not None:
            assert {permission for permission, _ in allowed(narrowed)} <= narrowing.permissions
        if narrowing.projects is not None:
            assert all(thing.project_id in narrowing.projects for _, thing in allowed(narrowed))


def test_narrowing_to_a_project_leaves_what_the_role_gives_in_a_project_of_it() -> None:
    for role in roles_at(ScopeKind.PROJECT):
        limited = principal(held(role, ORGANIZATION), narrowing=Narrowing(projects=frozenset({P})))
        assert allowed(limited) == allowed(principal(held(role, PROJECT))), role


def test_permissions_of_the_platform_never_come_from_a_customers_role() -> None:
    of_platform = {name for name, kind in NARROWEST.items() if kind is ScopeKind.PLATFORM}
    for role in bindable():
        customer = principal(role, platform=False)
        assert not customer.where.keys() & of_platform, role
        assert not any(reach.platform for reach in customer.where.values()), role
        assert role.scope.kind is not ScopeKind.PLATFORM or customer.where == {}


def test_nobody_grants_more_than_they_have() -> None:
    everybody = [(role, principal(role, platform=True)) for role in bindable()]
    may = {role: allowed(who) for role, who in everybody}
    for (granter, who), granted in product(everybody, bindable()):
        grants = grants_of([granted], platform=True)
        if who.covers(grants):
            assert may[granted] <= may[granter], (granter, granted)
        else:
            missing = who.missing(grants)
            assert missing in permissions_of(granted.role, granted.scope.kind), (granter, granted)


def test_everybody_covers_themselves_and_only_owners_cover_owners() -> None:
    for role in bindable():
        who = principal(role, platform=True)
        assert who.covers(who.grants)
        of_owner = grants_of([held(Role.OWNER, ORGANIZATION)], platform=True)
        assert who.covers(of_owner) is (role.role is Role.OWNER and role.scope == ORGANIZATION), role


def test_a_limited_key_covers_no_more_than_it_is_limited_to() -> None:
    """So it makes no key, for its own owner either, that could do more."""
    for narrowing in NARROWINGS[1:]:
        owner = held(Role.OWNER, ORGANIZATION)
        limited = principal(owner, narrowing=narrowing)
        assert not limited.covers(grants_of([owner], platform=False)), narrowing
        assert limited.covers(grants_of([owner], narrowing, platform=False)), narrowing


def test_who_posts_money_and_who_runs_machines_cover_each_other_in_nothing_that_matters() -> None:
    finance = principal(held(Role.FINANCE, PLATFORM), platform=True)
    operator = principal(held(Role.OPERATOR, PLATFORM), platform=True)
    assert finance.missing(operator.grants) is not None
    assert operator.missing(finance.grants) is Permission.BALANCE_ALERTS_SET


def test_at_platform_scope_a_subject_has_one_role() -> None:
    of_platform = [held(role, PLATFORM, number) for number, role in enumerate(roles_at(ScopeKind.PLATFORM))]
    for role in of_platform:
        assert separated([role, held(Role.OWNER, ORGANIZATION), held(Role.MEMBER, PROJECT)])
    for pair in combinations(of_platform, 2):
        assert not separated(pair), pair


def test_a_decision_agrees_with_the_reach_and_names_the_role_or_what_is_missing() -> None:
    everybody = [(role, principal(role, platform=True)) for role in bindable()]
    for (role, who), permission, kind in product(everybody, Permission, ScopeKind):
        decided = decide(who, permission, kind)
        if permission in EVERYBODYS:
            assert isinstance(decided, Allowed)
        elif who.reach(permission).has(kind):
            assert decided == Allowed(role, who.reach(permission))
        else:
            assert isinstance(decided, Denied)
            assert decided.permission is permission
            assert f"`{permission}`" in decided.why
            assert decided.why.endswith(".")


def test_a_denial_says_whether_roles_or_scope_or_the_key_are_what_is_missing() -> None:
    viewer = held(Role.VIEWER, PROJECT)
    for who, permission, kind, words in (
        (principal(), Permission.LEASES_READ, ScopeKind.LEASE, "you have no role"),
        (principal(viewer), Permission.LEASES_CREATE, ScopeKind.ENVIRONMENT, "your roles (`viewer`)"),
        (principal(viewer), Permission.LEASES_CREATE, ScopeKind.ENVIRONMENT, "`owner`, `admin`, `member`"),
        (principal(viewer), Permission.LEASES_READ, ScopeKind.ORGANIZATION, "you have it for less"),
        (
            principal(viewer),
            Permission.ADMISSION_DECISIONS_READ,
            ScopeKind.ORGANIZATION,
            "for a whole organization, and your role `viewer` is for less",
        ),
        (
            principal(viewer, narrowing=Narrowing(frozenset({Permission.SKUS_READ}))),
            Permission.LEASES_READ,
            ScopeKind.LEASE,
            "the limits of your API key",
        ),
    ):
        decided = decide(who, permission, kind)
        assert isinstance(decided, Denied)
        assert words in decided.why, decided.why


def test_a_reach_enters_the_projects_in_which_it_contains_something() -> None:
    for scope in THINGS[1:]:
        reach = Reach.of([scope])
        for project in (P, Q):
            inside = scope.project_id in {None, project}
            assert reach.enters(project) is inside, (scope, project)


def test_a_reach_of_several_scopes_contains_what_any_of_them_contains() -> None:
    for one, other, thing in product(THINGS, THINGS, THINGS):
        together = Reach.of([one, other]).contains(thing)
        assert together is (Reach.of([one]).contains(thing) or Reach.of([other]).contains(thing))


def test_what_may_be_done_changes_the_fingerprint() -> None:
    for one, other in combinations([principal(role, platform=True) for role in bindable()], 2):
        assert (one.fingerprint == other.fingerprint) is (one.where == other.where)
    limited = principal(held(Role.OWNER, ORGANIZATION), narrowing=NARROWINGS[1])
    assert limited.fingerprint != principal(held(Role.OWNER, ORGANIZATION)).fingerprint


def test_grants_say_which_role_gave_them() -> None:
    first, second = held(Role.VIEWER, PROJECT, 1), held(Role.MEMBER, OTHER, 2)
    grants: tuple[Grant, ...] = grants_of([first, second], platform=False)
    assert [grant.by for grant in grants] == [first, second]
    assert reaches(grants)[Permission.LEASES_CREATE] == Reach.of([OTHER])
