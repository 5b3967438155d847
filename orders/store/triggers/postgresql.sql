-- As in sqlite.sql, where the reasons are.

CREATE OR REPLACE FUNCTION order_events_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the event log is never changed'
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE OR REPLACE FUNCTION audit_trail_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit trail is never changed'
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER order_events_no_update BEFORE UPDATE OF {fixed} ON order_events
    FOR EACH STATEMENT EXECUTE FUNCTION order_events_never_changed();

CREATE TRIGGER order_events_only_forget BEFORE UPDATE ON order_events FOR EACH ROW
    WHEN (coalesce({personal}) IS NOT NULL)
    EXECUTE FUNCTION order_events_never_changed();

CREATE TRIGGER order_events_no_delete BEFORE DELETE ON order_events
    FOR EACH STATEMENT EXECUTE FUNCTION order_events_never_changed();

CREATE TRIGGER order_events_no_truncate BEFORE TRUNCATE ON order_events
    FOR EACH STATEMENT EXECUTE FUNCTION order_events_never_changed();

CREATE TRIGGER audit_trail_no_update BEFORE UPDATE ON audit_trail
    FOR EACH STATEMENT EXECUTE FUNCTION audit_trail_never_changed();

CREATE TRIGGER audit_trail_no_delete BEFORE DELETE ON audit_trail
    FOR EACH STATEMENT EXECUTE FUNCTION audit_trail_never_changed();

CREATE TRIGGER audit_trail_no_truncate BEFORE TRUNCATE ON audit_trail
    FOR EACH STATEMENT EXECUTE FUNCTION audit_trail_never_changed();

CREATE OR REPLACE FUNCTION order_quarters_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    happened_at timestamptz;
    -- What is added to placed, shipped and cancelled.
    counts integer[];
BEGIN
    CASE NEW.type
        WHEN 'order.placed' THEN happened_at := NEW.placed_at; counts := '{1, 0, 0}';
        WHEN 'order.shipped' THEN happened_at := NEW.ship_date; counts := '{0, 1, 0}';
        WHEN 'order.cancelled' THEN happened_at := NEW.at; counts := '{0, 0, 1}';
        ELSE
            SELECT CASE WHEN status = 'shipped' THEN ship_date
                    WHEN type = 'order.imported' THEN updated_at ELSE at END,
                CASE status WHEN 'shipped' THEN '{0, -1, 0}'::integer[] ELSE '{0, 0, -1}' END
            INTO happened_at, counts
            FROM order_events WHERE order_id = NEW.order_id AND id < NEW.id
                AND type IN ('order.shipped', 'order.cancelled', 'order.imported')
            ORDER BY id DESC LIMIT 1;
            IF NOT FOUND THEN
                RETURN NULL;
            END IF;
    END CASE;
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    SELECT quarter, counts[1], counts[2], counts[3] FROM (VALUES
        (CAST(floor((extract(epoch FROM happened_at) + 62135596800) / 900) AS bigint)), (-1)
    ) AS counted (quarter)
    ON CONFLICT (quarter) DO UPDATE SET placed = order_quarters.placed + excluded.placed,
        shipped = order_quarters.shipped + excluded.shipped,
        cancelled = order_quarters.cancelled + excluded.cancelled;
    RETURN NULL;
END $$;

CREATE TRIGGER order_quarters_kept AFTER INSERT ON order_events FOR EACH ROW
    WHEN (NEW.type IN ('order.placed', 'order.shipped', 'order.cancelled', 'order.reopened'))
    EXECUTE FUNCTION order_quarters_kept();
