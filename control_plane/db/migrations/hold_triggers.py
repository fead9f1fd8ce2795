"""What the database itself does for holds, as the first migration creates it: each is resolved once, and stays on record."""

STATEMENTS = (
    """
    CREATE FUNCTION refuse_second_resolution() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, public AS $$
    BEGIN
      RAISE EXCEPTION 'the hold of lease % is resolved, or less would be posted of it than before', OLD.lease_id
        USING ERRCODE = 'restrict_violation';
    END $$
    """,
    """
    CREATE TRIGGER resolved_once BEFORE UPDATE ON holds FOR EACH ROW
    WHEN ((OLD.released_at IS NOT NULL AND NEW.released_at IS DISTINCT FROM OLD.released_at)
          OR NEW.posted_nano < OLD.posted_nano)
    EXECUTE FUNCTION refuse_second_resolution()
    """,
    # Otherwise one that is resolved could be replaced by another.
    """
    CREATE FUNCTION refuse_other_hold() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, public AS $$
    BEGIN
      RAISE EXCEPTION 'a hold stays on record, with its lease' USING ERRCODE = 'restrict_violation';
    END $$
    """,
    """
    CREATE TRIGGER with_its_lease BEFORE UPDATE ON holds FOR EACH ROW
    WHEN (NEW.lease_id IS DISTINCT FROM OLD.lease_id)
    EXECUTE FUNCTION refuse_other_hold()
    """,
    "CREATE TRIGGER kept BEFORE DELETE ON holds FOR EACH ROW EXECUTE FUNCTION refuse_other_hold()",
    "CREATE TRIGGER never_emptied BEFORE TRUNCATE ON holds EXECUTE FUNCTION refuse_other_hold()",
)
