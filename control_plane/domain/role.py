"""Roles: named sets of permissions, bound to a subject at a scope."""

from enum import StrEnum


class Role(StrEnum):
    OWNER = "owner"
    """Everything that concerns the organization."""
    ADMIN = "admin"
    """Runs the organization: its people, projects and leases. Cannot appoint owners."""
    MEMBER = "member"
    """Leases machines."""
    VIEWER = "viewer"
    """Reads, and changes nothing."""
    FINANCE = "finance"
    """In an organization: reads usage and bills. At platform scope: posts money, and touches no machine."""
    OPERATOR = "operator"
    """At platform scope: runs the machines, and posts no money."""
    AUDITOR = "auditor"
    """At platform scope: reads everything, and writes nothing."""
