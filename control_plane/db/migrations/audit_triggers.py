"""What the database itself does for the audit log, as the first migration creates it.

A line leaves the pending ones only for a chain, and a chain only once it is old and a checkpoint continues it. What the
reconciler does becomes a line in the transaction that does it: the rows that prove it are inserted or changed anyway, so
a trigger on them cannot be forgotten. The words of events and outcomes are the domain's (`domain/audit.py`); a test
holds them against it.
"""

KEPT_DAYS_MIN = 30

_PENDING_KEPT = """
CREATE FUNCTION audit_pending_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    IF EXISTS (SELECT FROM public.audit_events e WHERE e.id = OLD.id) THEN
      RETURN OLD;
    END IF;
  END IF;
  RAISE EXCEPTION 'a line of the audit log is not edited, and leaves audit_pending only for its chain'
    USING ERRCODE = 'restrict_violation';
END $$
"""
_EVENTS_KEPT = f"""
CREATE FUNCTION audit_events_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    IF OLD.at < now() - interval '{KEPT_DAYS_MIN} days' AND EXISTS (
      SELECT FROM public.audit_checkpoints c WHERE c.organization_id IS NOT DISTINCT FROM OLD.organization_id
        AND c.reason = 'pruned' AND c.sequence >= OLD.sequence) THEN
      RETURN OLD;
    END IF;
  END IF;
  RAISE EXCEPTION 'the audit log is append-only: lines are pruned behind a checkpoint, after {KEPT_DAYS_MIN} days'
    USING ERRCODE = 'restrict_violation';
END $$
"""


def _kept(table: str) -> tuple[str, ...]:
    return (
        f"CREATE TRIGGER kept BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_kept()",
        f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {table}_kept()",
    )


_LOOP = """
CREATE FUNCTION audit_loop() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (organization_id, at, event, outcome, code, subject, subject_kind, project, targets,
                                    rule, links, details)
  SELECT NEW.organization_id, NEW.at,
    CASE WHEN NEW.state_after = 'terminating' THEN 'machines.terminate' WHEN NEW.state_after = 'ending' THEN 'leases.end'
         WHEN NEW.event = 'asked' THEN 'machines.order' WHEN NEW.event = 'rejected' THEN 'machines.reject'
         WHEN NEW.event = 'confirmed_gone' THEN 'machines.end' ELSE 'machines.create' END,
    CASE WHEN NEW.event = 'rejected' THEN 'failed' ELSE 'allowed' END,
    CASE WHEN NEW.event = 'rejected' THEN 'rejected' END,
    NEW.actor, 'loop', 'prj_' || replace(NEW.project_id::text, '-', ''),
    array_remove(ARRAY['le_' || replace(NEW.lease_id::text, '-', ''), 'mc_' || replace(NEW.machine_id::text, '-', '')],
                 NULL),
    'journal:' || NEW.event,
    jsonb_build_object('journal', jsonb_build_array(NEW.number))
      || CASE WHEN m.id IS NULL THEN '{}' ELSE jsonb_build_object('launch_key', jsonb_build_array(m.launch_key)) END,
    CASE WHEN m.id IS NULL THEN '{}' ELSE jsonb_build_object('account', m.account, 'machine_region', m.region) END
  FROM (SELECT) AS once LEFT JOIN public.machines m ON m.id = NEW.machine_id;
  RETURN NULL;
END $$
"""
_SETTLED = """
CREATE FUNCTION audit_settled() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (organization_id, at, event, outcome, subject, subject_kind, targets, rule, details)
  VALUES (NEW.organization_id, NEW.at, 'organizations.settle', 'allowed', NEW.actor, 'loop',
    ARRAY['org_' || replace(NEW.organization_id::text, '-', '')], 'organization:' || NEW.event,
    jsonb_build_object('state_before', NEW.state_before, 'state_after', NEW.state_after));
  RETURN NULL;
END $$
"""
_BALANCE = """
CREATE FUNCTION audit_balance() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (organization_id, at, event, outcome, subject, subject_kind, targets, rule, details)
  VALUES (NEW.organization_id, NEW.at, 'balances.notice', 'allowed', NEW.actor, 'loop',
    ARRAY['org_' || replace(NEW.organization_id::text, '-', '')], 'balance:' || NEW.event,
    jsonb_build_object('state_before', NEW.state_before, 'state_after', NEW.state_after,
                       'balance_nano', NEW.balance_nano, 'limit_nano', NEW.limit_nano));
  RETURN NULL;
END $$
"""
_FROZEN = """
CREATE FUNCTION audit_frozen() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (at, event, outcome, subject, subject_kind, rule, details)
  VALUES (coalesce(NEW.frozen_since, NEW.listing_asked_at, now()),
    CASE WHEN NEW.frozen_since IS NULL THEN 'provider_accounts.thaw' ELSE 'provider_accounts.freeze' END,
    'allowed', 'observe_machines', 'loop', 'sweep', jsonb_build_object('account', NEW.name));
  RETURN NULL;
END $$
"""
_DESTROYED = """
CREATE FUNCTION audit_destroyed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (organization_id, at, event, outcome, subject, subject_kind, request_id, rule, details)
  VALUES (NEW.organization_id, NEW.at, 'data_keys.destroy', 'allowed', NEW.actor,
    CASE WHEN NEW.actor_kind = 'loop' THEN 'loop' ELSE 'administrator' END, NEW.request_id, 'organization:deleted',
    jsonb_build_object('count', NEW.data_keys));
  RETURN NULL;
END $$
"""
# Runs with its owner's rights: the API writes no line of the platform's chain, but makes the keys of access tokens.
_SIGNING_KEY = """
CREATE FUNCTION audit_signing_key() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (at, event, outcome, subject, subject_kind, rule, details)
  VALUES (NEW.made_at, 'signing_keys.make', 'allowed', 'api', 'system', 'key_ring', jsonb_build_object('key', NEW.id));
  RETURN NULL;
END $$
"""
_ORPHAN = """
CREATE FUNCTION audit_orphan() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (at, event, outcome, subject, subject_kind, rule, links, details)
  VALUES (NEW.terminate_asked_at, 'orphans.end', 'allowed', 'collect_orphans', 'loop', 'orphan',
    jsonb_build_object('launch_key', jsonb_build_array(NEW.launch_key)), jsonb_build_object('account', NEW.account));
  RETURN NULL;
END $$
"""

STATEMENTS = (
    _PENDING_KEPT,
    _EVENTS_KEPT,
    *_kept("audit_pending"),
    *_kept("audit_events"),
    _LOOP,
    """
    CREATE TRIGGER audited AFTER INSERT ON journal FOR EACH ROW
    WHEN (NEW.actor_kind = 'loop' AND (
      (NEW.machine_id IS NOT NULL AND NEW.event IN ('asked', 'accepted', 'found', 'rejected', 'confirmed_gone'))
      OR (NEW.state_after IN ('terminating', 'ending') AND NEW.state_after IS DISTINCT FROM NEW.state_before)))
    EXECUTE FUNCTION audit_loop()
    """,
    _SETTLED,
    """
    CREATE TRIGGER audited AFTER INSERT ON organization_events FOR EACH ROW
    WHEN (NEW.actor_kind = 'loop' AND NEW.event = 'settled') EXECUTE FUNCTION audit_settled()
    """,
    _BALANCE,
    "CREATE TRIGGER audited AFTER INSERT ON balance_events FOR EACH ROW EXECUTE FUNCTION audit_balance()",
    _FROZEN,
    """
    CREATE TRIGGER audited AFTER UPDATE OF frozen_since ON provider_accounts FOR EACH ROW
    WHEN ((NEW.frozen_since IS NULL) <> (OLD.frozen_since IS NULL)) EXECUTE FUNCTION audit_frozen()
    """,
    _DESTROYED,
    """
    CREATE TRIGGER audited AFTER INSERT ON key_destructions FOR EACH ROW EXECUTE FUNCTION audit_destroyed()
    """,
    _SIGNING_KEY,
    "CREATE TRIGGER audited AFTER INSERT ON signing_keys FOR EACH ROW EXECUTE FUNCTION audit_signing_key()",
    _ORPHAN,
    """
    CREATE TRIGGER audited AFTER UPDATE OF terminate_asked_at ON orphans FOR EACH ROW
    WHEN (OLD.terminate_asked_at IS NULL AND NEW.terminate_asked_at IS NOT NULL) EXECUTE FUNCTION audit_orphan()
    """,
)

# Runs with the owner's rights: operators and auditors list the lines of all organizations. It answers which lines there
# are, and each is read as its own tenant.
EVERY_EVENT = """
CREATE FUNCTION audit_event_ids(
  chain uuid, platform boolean, since timestamptz, until timestamptz, named text, ended text, who text, about text,
  before_at timestamptz, before_id uuid, size integer)
RETURNS TABLE (organization_id uuid, id uuid) LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public AS $$
  SELECT e.organization_id, e.id FROM public.audit_events e
  WHERE (chain IS NULL OR e.organization_id = chain) AND (NOT platform OR e.organization_id IS NULL)
    AND (since IS NULL OR e.at >= since) AND (until IS NULL OR e.at < until) AND (named IS NULL OR e.event = named)
    AND (ended IS NULL OR e.outcome = ended) AND (who IS NULL OR who IN (e.subject, e.credential))
    AND (about IS NULL OR e.targets @> ARRAY[about])
    AND (before_at IS NULL OR (e.at, e.id) < (before_at, before_id))
  ORDER BY e.at DESC, e.id DESC LIMIT size
$$
"""
EVERY_EVENT_SIGNATURE = "audit_event_ids(uuid, boolean, timestamptz, timestamptz, text, text, text, text, timestamptz, uuid, integer)"
# Runs with the owner's rights: whose key it was that is not accepted any more, for the line of the refusal. There is no
# tenant, because the key opens nothing.
REFUSED_KEYS = """
CREATE FUNCTION refused_api_keys(secrets bytea[])
RETURNS TABLE (secret_sha256 bytea, organization_id uuid, api_key_id uuid, user_id uuid, service_account_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT k.secret_sha256, k.organization_id, k.id, k.user_id, k.service_account_id
  FROM public.api_keys k WHERE k.secret_sha256 = ANY(secrets)
$$
"""
REFUSED_KEYS_SIGNATURE = "refused_api_keys(bytea[])"
# Runs with the owner's rights: a sign-in is refused before an organization is known, so its line belongs to the
# platform's chain, of which the API writes no other line.
REFUSED_SIGN_INS = """
CREATE FUNCTION audit_refused_sign_ins(lines jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  INSERT INTO public.audit_pending (id, at, event, outcome, code, subject, subject_kind, address, client, region, rule,
                                    request_id, details)
  SELECT id, at, CASE event WHEN 'refusals.summarize' THEN event ELSE 'sign_ins.refuse' END, 'refused', code, 'api',
    'system', address, client, region, rule, request_id, details
  FROM jsonb_to_recordset(lines) AS given(id uuid, at timestamptz, event text, code text, address text, client text,
                                          region text, rule text, request_id text, details jsonb)
$$
"""
REFUSED_SIGN_INS_SIGNATURE = "audit_refused_sign_ins(jsonb)"
FUNCTIONS = (
    (EVERY_EVENT, EVERY_EVENT_SIGNATURE),
    (REFUSED_KEYS, REFUSED_KEYS_SIGNATURE),
    (REFUSED_SIGN_INS, REFUSED_SIGN_INS_SIGNATURE),
)
LOOKED_UP = {
    "audit_events": ("id", "organization_id", "at", "event", "outcome", "subject", "credential", "targets"),
}
"""What these functions read."""
