-- Notes every change of the tables that decide a status, in the transaction
-- that makes it: for tests alone.
CREATE TABLE audit (
    seq       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx        text        NOT NULL DEFAULT pg_current_xact_id()::text,
    began     timestamptz NOT NULL DEFAULT now(),
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    what      text        NOT NULL, -- queue, claim or delivery
    gone      boolean     NOT NULL, -- the row was deleted
    sid       bigint      NOT NULL,
    event_ids text[]      NOT NULL,
    attempts  integer     NOT NULL DEFAULT 0,
    due_at    timestamptz,
    lease     timestamptz,
    status    text
);
CREATE FUNCTION audit_queue() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r trigger_queue;
BEGIN
    IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
    INSERT INTO audit (what, gone, sid, event_ids, attempts, due_at)
    VALUES ('queue', TG_OP = 'DELETE', r.sid, ARRAY[r.event_id], r.attempts, r.due_at);
    RETURN NULL;
END $$;
CREATE FUNCTION audit_claim() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r trigger_claims;
BEGIN
    IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
    INSERT INTO audit (what, gone, sid, event_ids, lease) VALUES ('claim', TG_OP = 'DELETE', r.sid, r.event_ids, r.lease_until);
    RETURN NULL;
END $$;
CREATE FUNCTION audit_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r trigger_deliveries;
BEGIN
    IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
    INSERT INTO audit (what, gone, sid, event_ids, attempts, status)
    VALUES ('delivery', TG_OP = 'DELETE', r.sid, ARRAY[r.event_id], r.attempts, r.status);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON trigger_queue FOR EACH ROW EXECUTE FUNCTION audit_queue();
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON trigger_claims FOR EACH ROW EXECUTE FUNCTION audit_claim();
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON trigger_deliveries FOR EACH ROW EXECUTE FUNCTION audit_delivery();
