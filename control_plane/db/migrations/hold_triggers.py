"""What the database itself does for holds, as the first migration creates it: each is resolved once."""

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
)
