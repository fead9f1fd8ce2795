"""What the database itself does for accounting periods, as the first migration creates it.

It chooses the period in which a fact is booked, refuses whatever is booked in a closed one, and lets a closed period be
reopened only by somebody else than who asked for it.

Whoever books in a period holds a shared advisory lock on it until the end of the transaction, and whoever closes it an
exclusive one, so that nothing is on its way into a period that has just been closed. A lock on the row would be written
to the table by every transaction of the ledger, and most periods have no row: they have always been open.
"""

from control_plane.db.migrations import ledger_functions

_LOCK_KEY = """
CREATE FUNCTION period_lock_key(issuer text, month timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public AS $$
  SELECT hashtextextended('period ' || issuer || ' ' || extract(epoch FROM month)::bigint, 0)
$$
"""
# Runs with its owner's rights, because customers see no period.
_BOOKING_PERIOD = """
CREATE FUNCTION booking_period(organization uuid, moment timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
  issued_by text;
  candidate timestamptz := date_trunc('month', moment, 'UTC');
BEGIN
  SELECT o.issuer INTO STRICT issued_by FROM public.organizations o WHERE o.id = organization;
  LOOP
    PERFORM pg_advisory_xact_lock_shared(public.period_lock_key(issued_by, candidate));
    IF NOT EXISTS (SELECT FROM public.periods p
                   WHERE p.issuer = issued_by AND p.month = candidate AND p.state = 'closed') THEN
      RETURN candidate;
    END IF;
    candidate := date_trunc('month', candidate + interval '40 days', 'UTC');
  END LOOP;
END $$
"""
_REFUSE = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE booked record;
BEGIN
  FOR booked IN {booked} ORDER BY 1, 2 LOOP
    PERFORM pg_advisory_xact_lock_shared(public.period_lock_key(booked.issuer, booked.period));
    IF EXISTS (SELECT FROM public.periods p
               WHERE p.issuer = booked.issuer AND p.month = booked.period AND p.state = 'closed') THEN
      RAISE EXCEPTION 'the period % of issuer % is closed: book a correction in an open one',
        to_char(booked.period AT TIME ZONE 'UTC', 'YYYY-MM'), booked.issuer USING ERRCODE = 'restrict_violation';
    END IF;
  END LOOP;
  RETURN NULL;
END $$
"""
_REFUSE_BOOKING = _REFUSE.format(
    name="refuse_closed_period",
    booked="""
    SELECT DISTINCT o.issuer, a.period FROM added a JOIN public.organizations o ON o.id = a.organization_id
  """,
)
# A posting is booked with its transaction, which may be older than the posting. Each transaction is looked up by its id:
# joined as tables, all transactions were read for every statement.
_REFUSE_POSTING = _REFUSE.format(
    name="refuse_posting_in_closed_period",
    booked="""
    SELECT DISTINCT o.issuer, t.period FROM (SELECT DISTINCT transaction_id FROM added) a
    CROSS JOIN LATERAL (
      SELECT organization_id, period FROM public.transactions WHERE id = a.transaction_id LIMIT 1
    ) t
    JOIN public.organizations o ON o.id = t.organization_id
  """,
)
_KEPT = """
CREATE FUNCTION periods_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP <> 'UPDATE' THEN
    RAISE EXCEPTION 'the record of a period is kept' USING ERRCODE = 'restrict_violation';
  END IF;
  IF (NEW.issuer, NEW.month) IS DISTINCT FROM (OLD.issuer, OLD.month) THEN
    RAISE EXCEPTION 'the record of a period stays its own' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NEW.state <> 'closed' AND (OLD.reopening_requested_by IS NULL
                                OR NEW.changed_by IS NOT DISTINCT FROM OLD.reopening_requested_by) THEN
    RAISE EXCEPTION 'a closed period is reopened by two people: one asks, another one agrees'
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$
"""


def _books(table: str, function: str) -> str:
    return (
        f"CREATE TRIGGER booked_in_open_period AFTER INSERT ON {table} REFERENCING NEW TABLE AS added"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
    )


STATEMENTS = (
    _LOCK_KEY,
    _BOOKING_PERIOD,
    _REFUSE_BOOKING,
    _REFUSE_POSTING,
    _books("charges", "refuse_closed_period"),
    _books("transactions", "refuse_closed_period"),
    _books("postings", "refuse_posting_in_closed_period"),
    _KEPT,
    """
    CREATE TRIGGER reopened_by_two BEFORE UPDATE ON periods FOR EACH ROW
    WHEN (OLD.state = 'closed') EXECUTE FUNCTION periods_kept()
    """,
    "CREATE TRIGGER kept BEFORE DELETE ON periods FOR EACH ROW EXECUTE FUNCTION periods_kept()",
    "CREATE TRIGGER never_emptied BEFORE TRUNCATE ON periods EXECUTE FUNCTION periods_kept()",
    "REVOKE ALL ON FUNCTION booking_period(uuid, timestamptz) FROM PUBLIC",
    """
    GRANT EXECUTE ON FUNCTION booking_period(uuid, timestamptz)
    TO splitplane_api, splitplane_reconciler, splitplane_admin
    """,
)

# Runs with its owner's rights: whoever closes a period asks about all customers. It answers nothing unless the API acts
# for the platform's organization. A lease whose bill is paused has nothing to meter before it is resumed, as in
# `db/usage.py`: it may wait for its next machine for weeks.
_MISSING = """
CREATE FUNCTION period_missing(of_issuer text, since timestamptz, until timestamptz)
RETURNS TABLE (unmetered_leases bigint, unrated_intervals bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT
    (SELECT count(*) FROM public.leases l JOIN public.organizations o ON o.id = l.organization_id
     WHERE o.issuer = of_issuer AND NOT l.meter_closed AND l.ready_at < until
       AND coalesce(l.metered_until, l.ready_at) < until
       AND NOT (l.billed_until IS NULL AND cardinality(l.paused_at) % 2 = 1
                AND coalesce(l.metered_until, l.ready_at)
                    >= date_trunc('second', l.paused_at[cardinality(l.paused_at)]))),
    (SELECT count(*) FROM public.unrated u JOIN public.intervals i USING (lease_id, number)
     JOIN public.organizations o ON o.id = i.organization_id
     WHERE o.issuer = of_issuer AND i.started_at >= since AND i.started_at < until)
  WHERE EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
$$
"""
# Likewise. A wallet's sum alone is the liability to all customers.
_BALANCES = """
CREATE FUNCTION ledger_balances() RETURNS TABLE (kind text, amount_nano bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT a.kind, sum(p.amount_nano)::bigint
  FROM public.postings p JOIN public.ledger_accounts a ON a.id = p.account_id
  WHERE EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  GROUP BY a.kind
$$
"""
# Likewise. Finance names a lease or a charge; whose it is decides as which tenant it is read.
_BILLED_ORGANIZATION = """
CREATE FUNCTION billed_organization(of_lease uuid, of_charge uuid) RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT found.organization_id FROM (
    SELECT l.organization_id FROM public.leases l WHERE l.id = of_lease
    UNION ALL
    SELECT c.organization_id FROM public.charges c WHERE c.id = of_charge
  ) found
  WHERE EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  LIMIT 1
$$
"""
# Likewise. Lists of finance name customers by the hundred.
_NAMES = """
CREATE FUNCTION organization_names(ids uuid[]) RETURNS TABLE (id uuid, name text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT o.id, o.name FROM public.organizations o
  WHERE o.id = ANY(ids)
    AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
$$
"""
FUNCTIONS = (
    (_MISSING, "period_missing(text, timestamptz, timestamptz)"),
    (_BALANCES, "ledger_balances()"),
    (_BILLED_ORGANIZATION, "billed_organization(uuid, uuid)"),
    (_NAMES, "organization_names(uuid[])"),
)
"""Functions of the API alone, with their signatures."""
LOOKED_UP = {
    "charges": (
        "id",
        "organization_id",
        "lease_id",
        "machine_id",
        "started_at",
        "ended_at",
        "stopped",
        "amount_nano",
    ),
    "intervals": ("lease_id", "number", "organization_id", "started_at"),
    "periods": ("issuer", "month", "state"),
    "transactions": ("id", "organization_id", "project_id", "period", *ledger_functions.TRANSACTION_COLUMNS),
    "standings": ledger_functions.STANDING_COLUMNS,
    "unrated": ("lease_id", "number"),
}
"""The columns that the functions with their owner's rights read, beside those that the migration names."""
