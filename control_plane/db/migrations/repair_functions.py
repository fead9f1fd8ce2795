"""What operators read of a machine that is repaired, as the first migration creates it."""

# Runs with its owner's rights, because the machine, its journal and the readings of its GPUs are those of its customer.
# It answers nothing unless the API acts for the platform's organization. A machine wrote the reading, so anything in it
# may be missing or wrong.
_MACHINE_FOR_PROVIDER = """
CREATE FUNCTION machine_for_provider(machine uuid, since timestamptz, until timestamptz)
RETURNS TABLE (
  provider text, account text, native_region text, native_type text, provider_ref text, gpu_count integer,
  gpu_uuids text[], done jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT m.provider, m.account, m.native_region, m.native_type, m.provider_ref, m.gpu_count,
    coalesce((
      SELECT array_agg(left(g.gpu ->> 'uuid', 100) ORDER BY g.number)
      FROM (
        SELECT v.reading FROM public.verification_reports v WHERE v.machine_id = m.id ORDER BY v.at DESC LIMIT 1) r,
      LATERAL jsonb_array_elements(
        CASE WHEN jsonb_typeof(r.reading -> 'gpus') = 'array' THEN r.reading -> 'gpus' ELSE '[]' END)
        WITH ORDINALITY AS g(gpu, number)
      WHERE jsonb_typeof(g.gpu -> 'uuid') = 'string'), '{}'),
    coalesce((
      SELECT jsonb_agg(jsonb_build_object('at', x.at, 'what', x.what) ORDER BY x.first)
      FROM (
        SELECT j.at, j.why AS what, min(j.number) AS first FROM public.journal j
        WHERE j.machine_id = m.id AND j.at >= since AND j.at <= until AND j.why IS NOT NULL
          AND j.event IN ('repair', 'proof_passed', 'proof_failed', 'proof_unanswered')
        GROUP BY j.at, j.why ORDER BY first DESC LIMIT 200
      ) x), '[]')
  FROM public.machines m
  WHERE m.id = machine
    AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
$$
"""

FUNCTIONS = ((_MACHINE_FOR_PROVIDER, "machine_for_provider(uuid, timestamptz, timestamptz)"),)
