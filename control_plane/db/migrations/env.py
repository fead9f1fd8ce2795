"""Alembic's entry point: runs the migrations on the connection that `migrate.py` opened."""

from alembic import context

from control_plane.db.tables.every import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
with context.begin_transaction():
    context.run_migrations()
