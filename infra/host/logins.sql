-- The logins of the processes on a host whose PostgreSQL knows its users by their names in the system (peer): there are no
-- passwords. Each login may take one role of ours and inherits nothing (docs/operating.md, "Logins of the database").
-- Run it as a superuser after the first migrate, which makes the roles. All of it is done, or nothing.
BEGIN;
CREATE ROLE "splitplane-api" LOGIN NOINHERIT;
GRANT splitplane_api TO "splitplane-api";
CREATE ROLE "splitplane-reconciler" LOGIN NOINHERIT;
GRANT splitplane_reconciler TO "splitplane-reconciler";
CREATE ROLE "splitplane-ingest" LOGIN NOINHERIT;
GRANT splitplane_ingest TO "splitplane-ingest";
CREATE ROLE "splitplane-admin" LOGIN NOINHERIT;
GRANT splitplane_admin TO "splitplane-admin";
CREATE ROLE "splitplane-backup" LOGIN NOINHERIT;
GRANT splitplane_backup TO "splitplane-backup";
-- The first migrate made its login a member of splitplane_owner. Later ones make no roles.
ALTER ROLE "splitplane-migrate" NOCREATEROLE;
COMMIT;
