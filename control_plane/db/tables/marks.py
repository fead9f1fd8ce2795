"""Building blocks of tables: common columns, and the marks that say who owns the rows and who may write them.

Row-level security, grants and triggers follow from the marks. Migrations create them (`migrations/steps.py`), and a
test compares every table of the migrated database with its marks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum, auto
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    Table,
    Uuid,
    text,
)
from sqlalchemy.schema import SchemaItem

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Tenancy(Enum):
    """Who owns the rows of a table, and so which of them the API's role may see."""

    TENANT = auto()
    """Every row has an organization. The API sees the rows of the organization that it acts for."""
    MIXED = auto()
    """A row has an organization, or none while it concerns only us. The API sees those of the one it acts for."""
    OURS_VISIBLE = auto()
    """As MIXED, but the API also sees the rows without an organization."""
    OFFERED = auto()
    """What operators make for everybody, or for the organization of the row. The API sees the rows of everybody and of
    the organization that it acts for. While it acts for the platform's organization, it sees and writes all of them."""
    WATCHED = auto()
    """Every row has an organization. The API sees the rows of the organization that it acts for and, while it acts for
    the platform's, all rows, because operators watch over them. It writes none."""
    PLATFORM = auto()
    """Rows of operators. The API sees and writes them only while it acts for the platform's organization."""
    CLAIMED = auto()
    """Machines: the API sees those on which the organization that it acts for has or had a claim."""
    OF_MACHINE = auto()
    """What belongs to a machine (`machine_id`): the API sees the rows of machines on which the organization that it
    acts for has or had a claim and, while it acts for the platform's organization, all rows. It writes none."""
    SHARED = auto()
    """No row belongs to a customer, so there is no filter. Needs a reason."""


class Lookups(Enum):
    """What functions may do with the rows of all tenants that run with the rights of `splitplane_lookups`."""

    NOTHING = auto()
    READ = auto()
    """They read the columns that the migration grants them."""
    ADD = auto()
    """They add rows, and see none."""
    WRITE = auto()


@dataclass(frozen=True, slots=True)
class Marks:
    tenancy: Tenancy
    reason: str
    """Why the table is shared; empty for the others."""
    fact: bool
    """Append-only: the database refuses UPDATE, DELETE and TRUNCATE, even to the table's owner."""
    api: frozenset[str]
    """The rights of the API's role besides reading: INSERT, UPDATE, DELETE."""
    api_updates: tuple[str, ...]
    """The only columns that the API's role may update; empty when it may update all columns, or none."""
    api_reads: tuple[str, ...] | None
    """The only columns that the API's role may read; None when it may read all of them."""
    admin: frozenset[str]
    """The rights of the administrator's commands, which may then also read: INSERT, UPDATE, DELETE. If it is empty,
    they may not even read."""
    lookups: Lookups
    ingest: bool
    """Whether the ingest process adds rows. It reads and changes none."""


def table(
    name: str,
    *parts: SchemaItem,
    tenancy: Tenancy = Tenancy.TENANT,
    shared: str = "",
    fact: bool = False,
    api: Iterable[str] = (),
    api_updates: tuple[str, ...] = (),
    api_reads: tuple[str, ...] | None = None,
    admin: Iterable[str] = (),
    lookups: Lookups = Lookups.NOTHING,
    unlogged: bool = False,
    ingest: bool = False,
    partition_by: str | None = None,
) -> Table:
    """A table with its marks. `shared` is the reason why its rows belong to no customer.

    An unlogged table is cheap to write, and empty after a crash of the database. `partition_by` is SQL, such as
    "LIST (slot)"; the migration makes the partitions.
    """
    marks = Marks(
        tenancy=Tenancy.SHARED if shared else tenancy,
        reason=shared,
        fact=fact,
        api=frozenset(api),
        api_updates=api_updates,
        api_reads=api_reads,
        admin=frozenset(admin),
        lookups=lookups,
        ingest=ingest,
    )
    return Table(
        name,
        metadata,
        *parts,
        info={"marks": marks},
        prefixes=["UNLOGGED"] if unlogged else None,
        postgresql_partition_by=partition_by,
    )


def marks_of(found: Table) -> Marks:
    marks = found.info["marks"]
    if not isinstance(marks, Marks):
        raise TypeError(f"{found.name} was made without marks.table()")
    return marks


def at(name: str, *, nullable: bool = True) -> Column[datetime]:
    """A column that holds a point in time."""
    return Column(name, DateTime(timezone=True), nullable=nullable)


def tenant(*, nullable: bool = False, of_owner: bool = False) -> Column[UUID]:
    """The organization of a row.

    With `of_owner`, the table has a reference made by `own` that is never null. It shows that the organization exists,
    so that a foreign key of this column would only be checked a second time for every row.
    """
    if of_owner:
        return Column("organization_id", Uuid, nullable=False)
    return Column("organization_id", Uuid, ForeignKey("organizations.id"), nullable=nullable)


def own(column: str, referred: str) -> ForeignKeyConstraint:
    """A reference to a row of another table with tenants, which must belong to the same organization.

    A foreign key on the id alone would let a tenant refer to another tenant's row, and learn that it exists.
    """
    return ForeignKeyConstraint(
        ["organization_id", column], [f"{referred}.organization_id", f"{referred}.id"]
    )


def project(*, nullable: bool = False) -> list[SchemaItem]:
    """The project of a tenant's row, which must belong to the same organization."""
    return [
        Column("project_id", Uuid, nullable=nullable),
        own("project_id", "projects"),
    ]


def environment(*, nullable: bool = False) -> list[SchemaItem]:
    """The environment of a tenant's row, which must belong to the row's project and organization."""
    return [
        Column("environment_id", Uuid, nullable=nullable),
        ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
        ),
    ]


def work() -> list[SchemaItem]:
    """The columns of rows that a worker takes, holds for a while, and gives back: see db/work.py."""
    return [
        at("due_at", nullable=False),
        Column("work_token", Uuid),
        at("work_until"),
        Column("tries", Integer, nullable=False, server_default=text("0")),
        at("tried_at"),
    ]


def known(column: str, values: type[StrEnum]) -> CheckConstraint:
    """A CHECK that a text column holds a value of the domain's enum."""
    return CheckConstraint(among(column, values), name=f"{column}_known")


def among(column: str, values: Iterable[StrEnum]) -> str:
    """SQL: the column holds one of these values."""
    words = ", ".join(f"'{value}'" for value in sorted(values))
    return f"{column} IN ({words})"
