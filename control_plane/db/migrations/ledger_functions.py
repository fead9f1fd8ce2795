"""What finance reads of the ledger over all customers, as the first migration creates it.

These functions run with their owner's rights, because finance reads rows of every tenant. They answer nothing unless
the API acts for the platform's organization.
"""

# An account of one owner is read by its own index. The wallets of all customers together are read by transaction,
# because nearly every transaction has one.
_ENTRIES = """
CREATE FUNCTION ledger_entries(of_account text, of_organization uuid, of_period timestamptz, before_id uuid,
  size integer)
RETURNS TABLE (transaction_id uuid, organization_id uuid, organization text, kind text, effective_at timestamptz,
  recorded_at timestamptz, period timestamptz, amount_nano bigint, approved_by text, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE account uuid;
BEGIN
  IF NOT EXISTS (SELECT FROM public.organizations us WHERE us.platform
                 AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid) THEN
    RETURN;
  END IF;
  SELECT a.id INTO account FROM public.ledger_accounts a
  WHERE a.kind = of_account AND (a.organization_id IS NULL OR a.organization_id = of_organization);
  IF account IS NOT NULL THEN
    RETURN QUERY
    SELECT t.id, p.organization_id, o.name, t.kind, t.effective_at, t.recorded_at, t.period, p.amount_nano,
           t.approved_by, t.reason
    FROM public.postings p JOIN public.transactions t ON t.id = p.transaction_id
    JOIN public.organizations o ON o.id = p.organization_id
    WHERE p.account_id = account AND (before_id IS NULL OR p.transaction_id < before_id)
      AND (of_organization IS NULL OR p.organization_id = of_organization)
      AND (of_period IS NULL OR t.period = of_period)
    ORDER BY p.transaction_id DESC LIMIT size;
  ELSIF of_organization IS NULL THEN
    RETURN QUERY
    SELECT t.id, p.organization_id, o.name, t.kind, t.effective_at, t.recorded_at, t.period, p.amount_nano,
           t.approved_by, t.reason
    FROM public.postings p JOIN public.ledger_accounts a ON a.id = p.account_id AND a.kind = of_account
    JOIN public.transactions t ON t.id = p.transaction_id JOIN public.organizations o ON o.id = p.organization_id
    WHERE (before_id IS NULL OR p.transaction_id < before_id) AND (of_period IS NULL OR t.period = of_period)
    ORDER BY p.transaction_id DESC LIMIT size;
  END IF;
END $$
"""
_WALLETS = """
CREATE FUNCTION ledger_wallets(after_at timestamptz, after_id uuid, size integer)
RETURNS TABLE (organization_id uuid, organization text, created_at timestamptz, wallet_nano bigint, held_nano bigint,
  receivable_nano bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT o.id, o.name, o.created_at, s.posted_nano, s.held_nano, s.receivable_nano
  FROM public.organizations o JOIN public.standings s ON s.organization_id = o.id
  WHERE NOT o.platform AND (after_at IS NULL OR (o.created_at, o.id) > (after_at, after_id))
    AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  ORDER BY o.created_at, o.id LIMIT size
$$
"""
FUNCTIONS = (
    (_ENTRIES, "ledger_entries(text, uuid, timestamptz, uuid, integer)"),
    (_WALLETS, "ledger_wallets(timestamptz, uuid, integer)"),
)
"""Functions of the API alone, with their signatures."""
TRANSACTION_COLUMNS = ("kind", "effective_at", "recorded_at", "approved_by", "reason")
STANDING_COLUMNS = ("organization_id", "posted_nano", "held_nano", "receivable_nano")
"""The columns that they read, beside those that other functions read."""
