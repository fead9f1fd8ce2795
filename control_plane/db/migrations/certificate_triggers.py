"""What the database itself does for SSH certificates, as the first migration creates it.

It refuses to change what was requested, signed, refused or revoked, tells the reconciler of requests and revocations,
and writes the lines of the audit log for what nobody requested through the API.
"""

_KEPT = """
CREATE FUNCTION ssh_certificate_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.refused_at IS NOT NULL OR OLD.revoked_at IS NOT NULL
    OR (NEW.id, NEW.organization_id, NEW.project_id, NEW.lease_id, NEW.serial, NEW.public_key, NEW.fingerprint, NEW.user_id,
        NEW.service_account_id, NEW.credential, NEW.credential_ends_at, NEW.requested_at)
      IS DISTINCT FROM
       (OLD.id, OLD.organization_id, OLD.project_id, OLD.lease_id, OLD.serial, OLD.public_key, OLD.fingerprint, OLD.user_id,
        OLD.service_account_id, OLD.credential, OLD.credential_ends_at, OLD.requested_at)
    OR (OLD.signed_at IS NOT NULL AND (NEW.signed_at, NEW.valid_after, NEW.valid_before, NEW.certificate)
      IS DISTINCT FROM (OLD.signed_at, OLD.valid_after, OLD.valid_before, OLD.certificate))
  THEN
    RAISE EXCEPTION 'an SSH certificate is not edited, and a revocation not undone' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$
"""
_NOTIFY_REQUEST = """
CREATE FUNCTION notify_ssh_certificate() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  PERFORM pg_notify(CASE WHEN TG_OP = 'INSERT' THEN 'splitplane_ssh_certificates' ELSE 'splitplane_ssh_revocations' END, '');
  RETURN NULL;
END $$
"""
_AUDIT = """
CREATE FUNCTION audit_ssh_certificate() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO public.audit_pending (organization_id, at, event, outcome, code, subject, subject_kind, project, targets, rule,
                                    details)
  SELECT NEW.organization_id, coalesce(NEW.revoked_at, NEW.refused_at, NEW.signed_at),
    CASE WHEN NEW.revoked_at IS NULL THEN 'ssh_certificates.sign' ELSE 'ssh_certificates.revoke' END,
    CASE WHEN NEW.refused_at IS NULL THEN 'allowed' ELSE 'refused' END, NEW.refused_why,
    CASE WHEN NEW.revoked_at IS NULL THEN 'sign_ssh_certificates' ELSE 'database' END,
    CASE WHEN NEW.revoked_at IS NULL THEN 'loop' ELSE 'system' END,
    'prj_' || replace(NEW.project_id::text, '-', ''),
    ARRAY['cert_' || replace(NEW.id::text, '-', ''), 'le_' || replace(NEW.lease_id::text, '-', '')],
    coalesce('revocation:' || NEW.revoked_why, 'refusal:' || NEW.refused_why, 'request:' || NEW.credential),
    jsonb_build_object('serial', NEW.serial);
  RETURN NULL;
END $$
"""

STATEMENTS = (
    _KEPT,
    "CREATE TRIGGER kept BEFORE UPDATE ON ssh_certificates FOR EACH ROW EXECUTE FUNCTION ssh_certificate_kept()",
    # Somebody waits for each request, and each revocation shuts somebody out. Both are rare: see db/bell.py.
    _NOTIFY_REQUEST,
    """
    CREATE TRIGGER requested AFTER INSERT ON ssh_certificates FOR EACH STATEMENT EXECUTE FUNCTION notify_ssh_certificate()
    """,
    """
    CREATE TRIGGER revoked AFTER UPDATE OF revoked_at ON ssh_certificates FOR EACH ROW
    WHEN (NEW.revoked_at IS NOT NULL AND NEW.signed_at IS NOT NULL) EXECUTE FUNCTION notify_ssh_certificate()
    """,
    _AUDIT,
    # A revocation that somebody requested has the line of that request. One of a certificate that had ended only ends
    # its sessions, and a lease of months has thousands of them: the line of what revoked them stands for all.
    """
    CREATE TRIGGER audited AFTER UPDATE ON ssh_certificates FOR EACH ROW
    WHEN ((NEW.signed_at IS DISTINCT FROM OLD.signed_at OR NEW.refused_at IS DISTINCT FROM OLD.refused_at
           OR NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
          AND NEW.revoked_why IS DISTINCT FROM 'requested'
          AND (NEW.revoked_at IS NULL OR OLD.valid_before IS NULL OR OLD.valid_before > NEW.revoked_at)) EXECUTE FUNCTION audit_ssh_certificate()
    """,
)
