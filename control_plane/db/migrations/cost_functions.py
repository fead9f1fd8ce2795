"""What finance reads of the machines of all customers, and of what they left, as the first migration creates it."""

# Runs with its owner's rights, because it reads the claims and charges of all customers. It answers nothing unless the
# API acts for the platform's organization. A machine ends at the latest when its provider took the request to end it,
# or when its lists began to miss it, whichever is first: `ending_at`.
_MACHINE_COSTS = """
CREATE FUNCTION machine_costs(
  since timestamptz, until timestamptz, of_provider text, after_id uuid, size integer)
RETURNS TABLE (
  id uuid, account text, provider text, provider_ref text, gpu_count integer, spot boolean, nano_per_hour bigint,
  stopped_nano_per_hour bigint, increment_seconds integer, minimum_seconds integer, billed_while_booting boolean,
  pooled boolean, pool_sla text, ordered_at timestamptz, running_at timestamptz, ending_at timestamptz, ended_at timestamptz, holders jsonb,
  charged jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT m.id, m.account, m.provider, m.provider_ref, m.gpu_count, m.spot, m.cost_nano_per_hour,
    m.stopped_cost_nano_per_hour, m.increment_seconds, m.minimum_seconds, m.billed_while_booting,
    m.purpose = 'pool', coalesce((SELECT p.sla FROM public.pools p WHERE p.id = m.pool_id),
      (SELECT l.sla FROM public.leases l WHERE l.id = m.reserved_for)),
    m.asked_at, m.running_at, least(m.terminate_asked_at, m.missed_since), m.gone_at,
    coalesce((
      SELECT jsonb_agg(jsonb_build_object(
        'lease_id', c.lease_id, 'lease', l.name, 'organization_id', c.organization_id, 'organization', o.name,
        'sku', l.sku, 'sla', l.sla, 'units', l.units, 'slot', c.slot, 'claimed_at', c.claimed_at, 'admitted_at', c.admitted_at,
        'ended_at', c.ended_at, 'switched_at', to_jsonb(l.switched_at)) ORDER BY c.claimed_at, c.id)
      FROM public.claims c JOIN public.leases l ON l.id = c.lease_id
      JOIN public.organizations o ON o.id = c.organization_id WHERE c.machine_id = m.id), '[]'),
    coalesce((
      SELECT jsonb_agg(jsonb_build_object('lease_id', x.lease_id, 'amount_nano', x.amount_nano,
        'on_seconds', x.on_seconds, 'stopped_seconds', x.stopped_seconds) ORDER BY x.lease_id)
      FROM (
        SELECT h.lease_id, sum(h.amount_nano)::bigint AS amount_nano,
          coalesce(sum(extract(epoch FROM h.ended_at - h.started_at)) FILTER (WHERE NOT h.stopped), 0)::bigint
            AS on_seconds,
          coalesce(sum(extract(epoch FROM h.ended_at - h.started_at)) FILTER (WHERE h.stopped), 0)::bigint
            AS stopped_seconds
        FROM public.charges h
        WHERE h.lease_id IN (SELECT c.lease_id FROM public.claims c WHERE c.machine_id = m.id)
          AND h.machine_id = m.id AND h.started_at >= since AND h.started_at < until
        GROUP BY h.lease_id
      ) x), '[]')
  FROM public.machines m
  WHERE m.asked_at < until AND (m.gone_at IS NULL OR m.gone_at >= since)
    AND (of_provider IS NULL OR m.provider = of_provider) AND (after_id IS NULL OR m.id > after_id)
    AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  ORDER BY m.id LIMIT size
$$
"""

# Likewise. What was left behind belongs to the lease that held its machine last.
_CHILD_COSTS = """
CREATE FUNCTION child_costs(
  since timestamptz, until timestamptz, of_provider text, after_id uuid, size integer)
RETURNS TABLE (
  id uuid, account text, provider text, kind text, ref text, nano_per_hour bigint, first_seen_at timestamptz,
  last_seen_at timestamptz, left_at timestamptz, gone_at timestamptz, machine_id uuid, ending_at timestamptz,
  lease_id uuid, lease text, organization_id uuid, organization text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT p.id, p.account, p.provider, p.kind, p.ref, p.nano_per_hour, p.first_seen_at, p.last_seen_at,
    p.left_at, p.gone_at, p.machine_id, least(m.terminate_asked_at, m.missed_since), c.lease_id, l.name,
    c.organization_id, o.name
  FROM public.priced_children p
  LEFT JOIN public.machines m ON m.id = p.machine_id
  LEFT JOIN LATERAL (
    SELECT k.lease_id, k.organization_id FROM public.claims k WHERE k.machine_id = p.machine_id
    ORDER BY k.claimed_at DESC, k.id DESC LIMIT 1) c ON true
  LEFT JOIN public.leases l ON l.id = c.lease_id
  LEFT JOIN public.organizations o ON o.id = c.organization_id
  WHERE p.left_at < until AND (p.gone_at IS NULL OR p.gone_at >= since)
    AND (of_provider IS NULL OR p.provider = of_provider) AND (after_id IS NULL OR p.id > after_id)
    AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  ORDER BY p.id LIMIT size
$$
"""

FUNCTIONS = (
    (_MACHINE_COSTS, "machine_costs(timestamptz, timestamptz, text, uuid, integer)"),
    (_CHILD_COSTS, "child_costs(timestamptz, timestamptz, text, uuid, integer)"),
)
