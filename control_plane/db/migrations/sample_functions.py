"""The partitions of samples, and the functions around them: whose credential it is, and emptying hours that are over."""

SLOTS = 6

PARTITIONS = tuple(
    statement
    for slot in range(SLOTS)
    for statement in (
        f"CREATE TABLE samples_{slot} PARTITION OF samples FOR VALUES IN ({slot})",
        # It cannot be a constraint of the whole table, because it does not contain the slot.
        f"CREATE UNIQUE INDEX uq_samples_{slot}_sequence ON samples_{slot} (claim_id, sequence)",
        # Nobody comes to the rows of a partition but through the whole table, except these two.
        f"ALTER TABLE samples_{slot} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE samples_{slot} FORCE ROW LEVEL SECURITY",
        f"GRANT SELECT ON samples_{slot} TO splitplane_backup",
        f"CREATE POLICY backup ON samples_{slot} FOR SELECT TO splitplane_backup USING (true)",
        f"GRANT SELECT (received_at), TRUNCATE ON samples_{slot} TO splitplane_lookups",
        f"CREATE POLICY lookups ON samples_{slot} FOR SELECT TO splitplane_lookups USING (true)",
    )
)

# Runs with its owner's rights: the ingest process reads no table. It answers nobody who does not know the digest of a
# credential, and that an agent's claim has ended only a little later than the claims do.
_SAMPLE_SENDERS = """
CREATE FUNCTION sample_senders(digests text[])
RETURNS TABLE (digest text, organization_id uuid, project_id uuid, claim_id uuid, lease_id uuid, machine_id uuid,
  ended boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT d.digest, a.organization_id, c.project_id, a.claim_id, a.lease_id, a.machine_id,
    a.ended_at IS NOT NULL OR c.ended_at IS NOT NULL
  FROM unnest(digests) d(digest)
  CROSS JOIN LATERAL (
    SELECT x.organization_id, x.claim_id, x.lease_id, x.machine_id, x.ended_at FROM public.agents x
    WHERE x.digest = d.digest
    UNION ALL
    SELECT x.organization_id, x.claim_id, x.lease_id, x.machine_id, x.ended_at FROM public.agents x
    WHERE x.next_digest = d.digest
  ) a
  JOIN public.claims c ON c.id = a.claim_id
$$
"""

# Runs with its owner's rights, because the reconciler's role may not truncate. It empties no partition that holds a
# sample of the hours that are kept, whatever moment it is told.
_EMPTY_SAMPLES = f"""
CREATE FUNCTION empty_samples(moment timestamptz, kept_hours integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
  this_hour bigint := floor(extract(epoch FROM moment) / 3600);
  kept_from timestamptz := to_timestamp((this_hour - kept_hours) * 3600);
  emptied integer := 0;
  fresh boolean;
  filled boolean;
BEGIN
  -- One at a time: two that have read the same partition would wait for each other with their TRUNCATE.
  IF NOT pg_try_advisory_xact_lock('public.samples'::regclass::oid::bigint) THEN
    RETURN 0;
  END IF;
  FOR slot IN 0..{SLOTS - 1} LOOP
    -- Hours from the oldest that is kept to the next one.
    CONTINUE WHEN mod(slot - mod(this_hour - kept_hours, {SLOTS}) + {SLOTS}, {SLOTS}) <= kept_hours + 1;
    EXECUTE format('SELECT EXISTS (SELECT received_at FROM public.samples_%s)', slot) INTO filled;
    CONTINUE WHEN NOT filled;
    EXECUTE format('SELECT EXISTS (SELECT FROM public.samples_%s WHERE received_at >= $1)', slot)
      INTO fresh USING kept_from;
    CONTINUE WHEN fresh;
    EXECUTE format('TRUNCATE public.samples_%s', slot);
    emptied := emptied + 1;
  END LOOP;
  RETURN emptied;
END $$
"""

# Runs with its owner's rights: operators read the samples of everybody's machines. It answers nothing unless the API acts
# for the platform's organization.
_FLEET_SAMPLES = """
CREATE FUNCTION fleet_samples(fresh_from timestamptz, after_id uuid, size integer)
RETURNS TABLE (
  organization_id uuid, project_id uuid, claim_id uuid, lease_id uuid, machine_id uuid, sequence bigint, at timestamptz,
  received_at timestamptz, skew_ms integer, notable boolean, document jsonb, gpu_model text, provider text, region text,
  lease text, project text, verdict text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT s.organization_id, s.project_id, s.claim_id, s.lease_id, s.machine_id, s.sequence, s.at, s.received_at,
    s.skew_ms, s.notable, s.document, m.gpu_model, m.provider, m.region, l.name, p.name, h.verdict
  FROM public.agents a JOIN public.claims c ON c.id = a.claim_id JOIN public.machines m ON m.id = a.machine_id
    JOIN public.leases l ON l.id = a.lease_id JOIN public.projects p ON p.id = c.project_id
    LEFT JOIN public.machine_health h ON h.machine_id = a.machine_id
    CROSS JOIN LATERAL (
      SELECT x.organization_id, x.project_id, x.claim_id, x.lease_id, x.machine_id, x.sequence, x.at, x.received_at,
        x.skew_ms, x.notable, x.document
      FROM public.samples x WHERE x.claim_id = a.claim_id ORDER BY x.at DESC LIMIT 1) s
  WHERE a.ended_at IS NULL AND s.at > fresh_from AND (after_id IS NULL OR a.claim_id > after_id)
    AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  ORDER BY a.claim_id LIMIT size
$$
"""

# Runs with its owner's rights: the ingest process reads no table. It answers what the workloads of all machines are asked
# for now, the strongest action of each, and nothing about whose they are. The reconciler asks it for those of nodes.
_MACHINE_SIGNALS = """
CREATE FUNCTION machine_signals(moment timestamptz)
RETURNS TABLE (claim_id uuid, action text, reason text, until timestamptz, ends_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT DISTINCT ON (s.claim_id) s.claim_id, s.action, s.reason, s.until, s.ends_at FROM (
    SELECT a.id, a.claim_id, a.action, a.detector AS reason, a.expires_at AS until, a.planned_at AS ends_at
    FROM public.enforcement_actions a
    WHERE a.armed AND a.action IN ('throttle_admission', 'smaller_batch', 'stop_admission', 'evict', 'shutdown')
      AND NOT EXISTS (SELECT FROM public.enforcement_ends e WHERE e.action_id = a.id)
    UNION ALL
    SELECT p.id, p.claim_id, 'evict', 'preemption', p.interrupt_at + interval '1 minute', p.interrupt_at
    FROM public.preemptions p WHERE p.state = 'notified'
  ) s JOIN public.claims c ON c.id = s.claim_id
  WHERE s.until > moment AND c.ended_at IS NULL
  ORDER BY s.claim_id, array_position(
    ARRAY['throttle_admission', 'smaller_batch', 'stop_admission', 'evict', 'shutdown'], s.action) DESC,
    s.ends_at, s.until DESC, s.id
$$
"""

FUNCTIONS = (
    (_MACHINE_SIGNALS, "machine_signals(timestamptz)", "splitplane_ingest, splitplane_reconciler"),
    (_FLEET_SAMPLES, "fleet_samples(timestamptz, uuid, integer)", "splitplane_api"),
    (_SAMPLE_SENDERS, "sample_senders(text[])", "splitplane_ingest"),
    (_EMPTY_SAMPLES, "empty_samples(timestamptz, integer)", "splitplane_reconciler"),
)

# A machine delivers a sample again when it got no answer, perhaps in another hour and so to another partition.
_SKIP_REPEATED_SAMPLE = """
CREATE FUNCTION skip_repeated_sample() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
  IF EXISTS (SELECT FROM public.samples s WHERE s.claim_id = NEW.claim_id AND s.sequence = NEW.sequence) THEN
    RETURN NULL;
  END IF;
  RETURN NEW;
END $$
"""
STATEMENTS = (
    _SKIP_REPEATED_SAMPLE,
    "CREATE TRIGGER skips_repeated BEFORE INSERT ON samples FOR EACH ROW EXECUTE FUNCTION skip_repeated_sample()",
)
