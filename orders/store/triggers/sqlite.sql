-- A blank line ends each statement. `tables` fills in which columns of an event stay as they are, and which
-- may be forgotten.

CREATE TRIGGER order_events_no_update BEFORE UPDATE OF {fixed} ON order_events
BEGIN
    SELECT RAISE(ABORT, 'the event log is never changed');
END;

-- What may name a person is forgotten, and never becomes anything else.
CREATE TRIGGER order_events_only_forget BEFORE UPDATE ON order_events
WHEN coalesce({personal}) IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'the event log is never changed');
END;

CREATE TRIGGER order_events_no_delete BEFORE DELETE ON order_events
BEGIN
    SELECT RAISE(ABORT, 'the event log is never changed');
END;

CREATE TRIGGER audit_trail_no_update BEFORE UPDATE ON audit_trail
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is never changed');
END;

CREATE TRIGGER audit_trail_no_delete BEFORE DELETE ON audit_trail
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is never changed');
END;

-- An event counts in its quarter of an hour since the beginning of the year 1, and in all (-1).
CREATE TRIGGER order_quarters_placed AFTER INSERT ON order_events
WHEN NEW.type = 'order.placed'
BEGIN
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    VALUES ((strftime('%s', NEW.placed_at) + 62135596800) / 900, 1, 0, 0), (-1, 1, 0, 0)
    ON CONFLICT (quarter) DO UPDATE SET placed = placed + excluded.placed,
        shipped = shipped + excluded.shipped, cancelled = cancelled + excluded.cancelled;
END;

CREATE TRIGGER order_quarters_shipped AFTER INSERT ON order_events
WHEN NEW.type = 'order.shipped'
BEGIN
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    VALUES ((strftime('%s', NEW.ship_date) + 62135596800) / 900, 0, 1, 0), (-1, 0, 1, 0)
    ON CONFLICT (quarter) DO UPDATE SET placed = placed + excluded.placed,
        shipped = shipped + excluded.shipped, cancelled = cancelled + excluded.cancelled;
END;

CREATE TRIGGER order_quarters_cancelled AFTER INSERT ON order_events
WHEN NEW.type = 'order.cancelled'
BEGIN
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    VALUES ((strftime('%s', NEW.at) + 62135596800) / 900, 0, 0, 1), (-1, 0, 0, 1)
    ON CONFLICT (quarter) DO UPDATE SET placed = placed + excluded.placed,
        shipped = shipped + excluded.shipped, cancelled = cancelled + excluded.cancelled;
END;

-- Of an order that is reopened, the event that settled it counts no more.
CREATE TRIGGER order_quarters_reopened AFTER INSERT ON order_events
WHEN NEW.type = 'order.reopened'
BEGIN
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    SELECT CASE WHEN is_of_all THEN -1 ELSE (strftime('%s', settled_at) + 62135596800) / 900 END,
        0, -(status = 'shipped'), -(status = 'cancelled')
    FROM (
        SELECT status, CASE WHEN status = 'shipped' THEN ship_date
            WHEN type = 'order.imported' THEN updated_at ELSE at END AS settled_at
        FROM order_events WHERE order_id = NEW.order_id AND id < NEW.id
            AND type IN ('order.shipped', 'order.cancelled', 'order.imported')
        ORDER BY id DESC LIMIT 1
    ) AS settled CROSS JOIN (SELECT false AS is_of_all UNION ALL SELECT true) WHERE true
    ON CONFLICT (quarter) DO UPDATE SET placed = placed + excluded.placed,
        shipped = shipped + excluded.shipped, cancelled = cancelled + excluded.cancelled;
END;
