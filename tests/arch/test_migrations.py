"""Migrations run beside the version before, so they only add; what takes away is a contract step of its own."""

from pathlib import Path

import pytest

from tests.support.migration_rules import faults

VERSIONS = Path("control_plane/db/migrations/versions")
MIGRATION = """
revision = "0002"
down_revision = "0001"

def upgrade() -> None:
    {step}
"""
REFUSED = (
    'op.drop_table("leases")',
    'op.drop_column("leases", "name")',
    'op.rename_table("leases", "rights")',
    'op.alter_column("leases", "name", new_column_name="title")',
    'op.alter_column("leases", "name", type_=sa.Integer())',
    'op.alter_column("leases", "name", nullable=False)',
    'op.add_column("leases", sa.Column("name", sa.Text(), nullable=False))',
    'op.create_check_constraint("short", "leases", "length(name) < 9")',
    'op.create_unique_constraint("one", "leases", ["name"])',
    'op.create_index("one", "leases", ["name"], unique=True)',
    'op.execute("ALTER TABLE leases DROP COLUMN name")',
    'op.execute("ALTER TABLE leases RENAME COLUMN name TO title")',
    'op.execute("ALTER TABLE leases ALTER COLUMN name SET NOT NULL")',
    'op.execute("alter table leases alter name type integer")',
    'op.execute("REVOKE SELECT ON leases FROM splitplane_api")',
    'op.execute("DELETE FROM leases")',
)
ALLOWED = (
    'op.create_table("notes", sa.Column("id", sa.Uuid(), nullable=False))',
    'op.create_table("notes"); op.create_index("one", "notes", ["name"], unique=True)',
    'op.add_column("leases", sa.Column("name", sa.Text(), nullable=True))',
    'op.add_column("leases", sa.Column("name", sa.Text(), nullable=False, server_default="x"))',
    'op.create_index("by_name", "leases", ["name"])',
    'op.alter_column("leases", "name", nullable=True)',
    'op.execute("GRANT SELECT ON leases TO splitplane_api")',
)


@pytest.mark.parametrize("path", sorted(VERSIONS.glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_a_migration_leaves_old_code_what_it_uses(path: Path) -> None:
    assert faults(path.read_text()) == []


def test_a_step_that_takes_away_is_refused_unless_it_is_marked_as_a_contract_step() -> None:
    for step in REFUSED:
        migration = MIGRATION.format(step=step)
        assert len(faults(migration)) == 1, step
        assert faults('contract = "0.4 stopped reading it"\n' + migration) == [], step
        assert faults('contract = ""\n' + migration) != [], step


def test_a_step_that_adds_is_taken() -> None:
    for step in ALLOWED:
        assert faults(MIGRATION.format(step=step)) == [], step
