-- What each earlier version of the program made or changed, on SQLite. Frozen; of 0004's triggers,
-- the bounds of days are left out, and of 0002 the counting until then: nothing reads them.
--- 0001
CREATE TABLE api_keys (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name VARCHAR(255) NOT NULL,
    prefix VARCHAR(16) NOT NULL, secret_hash BLOB NOT NULL, previous_hash BLOB, previous_until
    VARCHAR(24), "plan" VARCHAR(64) NOT NULL, per_minute INTEGER, per_day INTEGER, plan_revision
    INTEGER NOT NULL, scopes VARCHAR(64) NOT NULL, created_at VARCHAR(24) NOT NULL, last_used_at
    VARCHAR(24), expires_at VARCHAR(24), revoked_at VARCHAR(24), banned_until VARCHAR(24));
CREATE UNIQUE INDEX api_keys_by_secret ON api_keys (secret_hash);
CREATE UNIQUE INDEX api_keys_by_previous_secret ON api_keys (previous_hash);
CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, pet_id BIGINT NOT NULL, quantity
    INTEGER NOT NULL, ship_date VARCHAR(24), status VARCHAR(16) NOT NULL, placed_at VARCHAR(24) NOT
    NULL, updated_at VARCHAR(24) NOT NULL, reference VARCHAR(64), CONSTRAINT orders_status CHECK
    (status IN ('pending', 'shipped', 'cancelled')), CONSTRAINT orders_quantity CHECK (quantity
    BETWEEN 1 AND 2147483647), CONSTRAINT orders_pet_id CHECK (pet_id >= 1), CONSTRAINT
    orders_shipped_has_date CHECK (status <> 'shipped' OR ship_date IS NOT NULL));
CREATE TABLE order_events (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, type VARCHAR(24) NOT NULL,
    order_id INTEGER NOT NULL, at VARCHAR(24) NOT NULL, actor VARCHAR(32) NOT NULL, request_id
    VARCHAR(32), pet_id BIGINT NOT NULL, quantity INTEGER NOT NULL, ship_date VARCHAR(24), status
    VARCHAR(16) NOT NULL, placed_at VARCHAR(24) NOT NULL, updated_at VARCHAR(24) NOT NULL, reference
    VARCHAR(64), CONSTRAINT order_events_type CHECK (type IN ('order.placed', 'order.shipped',
    'order.cancelled', 'order.imported')), FOREIGN KEY(order_id) REFERENCES orders (id));
CREATE INDEX order_events_by_order ON order_events (order_id, id);
CREATE TRIGGER order_events_no_update BEFORE UPDATE ON order_events BEGIN SELECT RAISE(ABORT, 'the event
    log is never changed'); END;
CREATE TRIGGER order_events_no_delete BEFORE DELETE ON order_events BEGIN SELECT RAISE(ABORT, 'the event
    log is never changed'); END;
CREATE TABLE idempotency_keys (key_id INTEGER NOT NULL, version INTEGER NOT NULL, value VARCHAR(255)
    NOT NULL, event_id INTEGER NOT NULL, at VARCHAR(24) NOT NULL, PRIMARY KEY (key_id, version,
    value), FOREIGN KEY(key_id) REFERENCES api_keys (id), FOREIGN KEY(event_id) REFERENCES
    order_events (id));
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (at);
CREATE TABLE pets (id INTEGER NOT NULL, name VARCHAR(255) NOT NULL, category_id BIGINT, status
    VARCHAR(16) NOT NULL, PRIMARY KEY (id), CONSTRAINT pets_status CHECK (status IN ('available',
    'pending', 'sold')));
CREATE TABLE store (id INTEGER NOT NULL, store_id VARCHAR(32) NOT NULL, demo_key_id INTEGER, PRIMARY
    KEY (id), FOREIGN KEY(demo_key_id) REFERENCES api_keys (id));
INSERT INTO store (id, store_id) VALUES (1, '0123456789abcdef');
--- 0002
CREATE INDEX orders_by_status ON orders (status, id);
CREATE INDEX orders_by_status_placed_at ON orders (status, placed_at, id);
CREATE INDEX orders_by_status_ship_date ON orders (status, ship_date, id);
CREATE INDEX orders_by_pet ON orders (pet_id, id);
CREATE INDEX orders_by_pet_placed_at ON orders (pet_id, placed_at, id);
CREATE INDEX orders_by_pet_ship_date ON orders (pet_id, ship_date, id);
CREATE INDEX orders_by_reference ON orders (reference, id) WHERE reference IS NOT NULL;
CREATE INDEX orders_by_reference_placed_at ON orders (reference, placed_at, id) WHERE reference IS
    NOT NULL;
CREATE INDEX orders_by_reference_ship_date ON orders (reference, ship_date, id) WHERE reference IS
    NOT NULL;
CREATE TABLE order_days (day VARCHAR(10) NOT NULL, placed BIGINT NOT NULL, shipped BIGINT NOT NULL,
    cancelled BIGINT NOT NULL, placed_min_id BIGINT, placed_max_id BIGINT, placed_min_ship_date
    VARCHAR(24), placed_max_ship_date VARCHAR(24), ships_min_id BIGINT, ships_max_id BIGINT,
    ships_min_placed_at VARCHAR(24), ships_max_placed_at VARCHAR(24), PRIMARY KEY (day));
--- 0003
CREATE TABLE webhook_endpoints (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, url VARCHAR(2048) NOT
    NULL, events VARCHAR(255) NOT NULL, allow_private BOOLEAN NOT NULL, secret VARCHAR(128) NOT
    NULL, previous_secret VARCHAR(128), previous_until VARCHAR(24), created_at VARCHAR(24) NOT NULL,
    position BIGINT NOT NULL, tries INTEGER NOT NULL, next_at VARCHAR(24), paused_at VARCHAR(24),
    paused_because VARCHAR(255), claimed_by VARCHAR(32), claimed_until VARCHAR(24));
CREATE TABLE webhook_refused (endpoint_id INTEGER NOT NULL, event_id INTEGER NOT NULL, tries INTEGER
    NOT NULL, next_at VARCHAR(24) NOT NULL, PRIMARY KEY (endpoint_id, event_id), FOREIGN
    KEY(endpoint_id) REFERENCES webhook_endpoints (id), FOREIGN KEY(event_id) REFERENCES
    order_events (id));
CREATE TABLE webhook_deliveries (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, endpoint_id INTEGER
    NOT NULL, event_id INTEGER, at VARCHAR(24) NOT NULL, outcome VARCHAR(16) NOT NULL, status
    INTEGER, fault VARCHAR(255), milliseconds INTEGER NOT NULL, answer VARCHAR(200) NOT NULL,
    FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id), FOREIGN KEY(event_id) REFERENCES
    order_events (id));
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint_id, id);
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (at);
--- 0004
CREATE TRIGGER order_days_placed AFTER INSERT ON order_events WHEN NEW.type = 'order.placed' BEGIN
    INSERT INTO order_days (day, placed, shipped, cancelled, placed_min_id)
    VALUES (substr(NEW.placed_at, 1, 10), 1, 0, 0, NEW.order_id)
    ON CONFLICT (day) DO UPDATE SET placed = placed + 1; END;
CREATE TRIGGER order_days_shipped AFTER INSERT ON order_events WHEN NEW.type = 'order.shipped' BEGIN
    INSERT INTO order_days (day, placed, shipped, cancelled, ships_min_id)
    VALUES (substr(NEW.ship_date, 1, 10), 0, 1, 0, NEW.order_id)
    ON CONFLICT (day) DO UPDATE SET shipped = shipped + 1; END;
CREATE TRIGGER order_days_cancelled AFTER INSERT ON order_events WHEN NEW.type = 'order.cancelled'
    BEGIN INSERT INTO order_days (day, placed, shipped, cancelled) VALUES (substr(NEW.at, 1, 10), 0,
    0, 1) ON CONFLICT (day) DO UPDATE SET cancelled = cancelled + 1; END;
--- 0005
DROP INDEX orders_by_status_placed_at;
DROP INDEX orders_by_status_ship_date;
DROP INDEX orders_by_pet_placed_at;
DROP INDEX orders_by_pet_ship_date;
DROP INDEX orders_by_reference_placed_at;
DROP INDEX orders_by_reference_ship_date;
CREATE INDEX orders_by_status_placed_at ON orders (status, placed_at, id, ship_date, pet_id,
    reference);
CREATE INDEX orders_by_status_ship_date ON orders (status, ship_date, id, placed_at, pet_id,
    reference);
DROP TRIGGER order_days_placed;
DROP TRIGGER order_days_shipped;
DROP TRIGGER order_days_cancelled;
ALTER TABLE order_days DROP COLUMN placed_min_id;
ALTER TABLE order_days DROP COLUMN placed_max_id;
ALTER TABLE order_days DROP COLUMN placed_min_ship_date;
ALTER TABLE order_days DROP COLUMN placed_max_ship_date;
ALTER TABLE order_days DROP COLUMN ships_min_id;
ALTER TABLE order_days DROP COLUMN ships_max_id;
ALTER TABLE order_days DROP COLUMN ships_min_placed_at;
ALTER TABLE order_days DROP COLUMN ships_max_placed_at;
DELETE FROM order_days WHERE placed = 0 AND shipped = 0 AND cancelled = 0;
CREATE TRIGGER order_days_placed AFTER INSERT ON order_events WHEN NEW.type = 'order.placed' BEGIN
    INSERT INTO order_days (day, placed, shipped, cancelled) VALUES (substr(NEW.placed_at, 1, 10),
    1, 0, 0) ON CONFLICT (day) DO UPDATE SET placed = placed + 1; END;
CREATE TRIGGER order_days_shipped AFTER INSERT ON order_events WHEN NEW.type = 'order.shipped' BEGIN
    INSERT INTO order_days (day, placed, shipped, cancelled) VALUES (substr(NEW.ship_date, 1, 10),
    0, 1, 0) ON CONFLICT (day) DO UPDATE SET shipped = shipped + 1; END;
CREATE TRIGGER order_days_cancelled AFTER INSERT ON order_events WHEN NEW.type = 'order.cancelled'
    BEGIN INSERT INTO order_days (day, placed, shipped, cancelled) VALUES (substr(NEW.at, 1, 10), 0,
    0, 1) ON CONFLICT (day) DO UPDATE SET cancelled = cancelled + 1; END;
--- 0006
CREATE INDEX webhook_refused_by_next ON webhook_refused (endpoint_id, next_at, event_id);
--- 0007
ALTER TABLE store ADD COLUMN clock_floor VARCHAR(24);
ALTER TABLE store ADD COLUMN misdated_events BIGINT;
--- 0008
CREATE TABLE audit_trail (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, at VARCHAR(24) NOT NULL,
    who VARCHAR(255) NOT NULL, action VARCHAR(32) NOT NULL, subject VARCHAR(512) NOT NULL);
CREATE TRIGGER audit_trail_no_update BEFORE UPDATE ON audit_trail BEGIN SELECT RAISE(ABORT, 'the audit
    trail is never changed'); END;
CREATE TRIGGER audit_trail_no_delete BEFORE DELETE ON audit_trail BEGIN SELECT RAISE(ABORT, 'the audit
    trail is never changed'); END;
--- 0009
ALTER TABLE orders ADD COLUMN note VARCHAR(500);
ALTER TABLE order_events ADD COLUMN note VARCHAR(500);
ALTER TABLE idempotency_keys ADD COLUMN request VARCHAR(64);
ALTER TABLE idempotency_keys ADD COLUMN outcomes TEXT;
ALTER TABLE idempotency_keys ALTER COLUMN event_id DROP NOT NULL;
ALTER TABLE order_events DROP CONSTRAINT order_events_type;
ALTER TABLE order_events ADD CONSTRAINT order_events_type CHECK (type IN ('order.placed',
    'order.changed', 'order.shipped', 'order.cancelled', 'order.imported'));
--- 0010
DROP INDEX orders_by_status_placed_at;
CREATE INDEX orders_by_status_placed_at ON orders (status, placed_at, id, ship_date, pet_id,
    reference, updated_at);
DROP INDEX orders_by_status_ship_date;
CREATE INDEX orders_by_status_ship_date ON orders (status, ship_date, id, placed_at, pet_id,
    reference, updated_at);
DROP INDEX orders_by_reference;
CREATE INDEX orders_by_reference ON orders (reference COLLATE NOCASE, id, reference) WHERE reference
    IS NOT NULL;
CREATE INDEX orders_by_updated_at ON orders (updated_at, id);
CREATE INDEX order_events_by_type ON order_events (type, id);
--- 0011
CREATE TABLE order_quarters ( quarter INTEGER NOT NULL, placed BIGINT NOT NULL, shipped BIGINT NOT
    NULL, cancelled BIGINT NOT NULL, PRIMARY KEY (quarter) );
INSERT INTO order_quarters (quarter, placed, shipped, cancelled) WITH happened AS ( SELECT placed_at
    AS at, 1 AS placed, 0 AS shipped, 0 AS cancelled FROM orders UNION ALL SELECT ship_date, 0, 1, 0
    FROM orders WHERE status = 'shipped' UNION ALL SELECT CASE type WHEN 'order.imported' THEN
    updated_at ELSE at END, 0, 0, 1 FROM order_events WHERE type IN ('order.cancelled',
    'order.imported') AND status = 'cancelled' ) SELECT (strftime('%s', at) + 62135596800) / 900,
    sum(placed), sum(shipped), sum(cancelled) FROM happened GROUP BY 1 UNION ALL SELECT -1,
    coalesce(sum(placed), 0), coalesce(sum(shipped), 0), coalesce(sum(cancelled), 0) FROM happened;
DROP TRIGGER order_days_placed;
DROP TRIGGER order_days_shipped;
DROP TRIGGER order_days_cancelled;
CREATE TRIGGER order_quarters_placed AFTER INSERT ON order_events WHEN NEW.type = 'order.placed'
    BEGIN INSERT INTO order_quarters (quarter, placed, shipped, cancelled) VALUES ((strftime('%s',
    NEW.placed_at) + 62135596800) / 900, 1, 0, 0), (-1, 1, 0, 0) ON CONFLICT (quarter) DO UPDATE SET
    placed = order_quarters.placed + excluded.placed, shipped = order_quarters.shipped +
    excluded.shipped, cancelled = order_quarters.cancelled + excluded.cancelled; END;
CREATE TRIGGER order_quarters_shipped AFTER INSERT ON order_events WHEN NEW.type = 'order.shipped'
    BEGIN INSERT INTO order_quarters (quarter, placed, shipped, cancelled) VALUES ((strftime('%s',
    NEW.ship_date) + 62135596800) / 900, 0, 1, 0), (-1, 0, 1, 0) ON CONFLICT (quarter) DO UPDATE SET
    placed = order_quarters.placed + excluded.placed, shipped = order_quarters.shipped +
    excluded.shipped, cancelled = order_quarters.cancelled + excluded.cancelled; END;
CREATE TRIGGER order_quarters_cancelled AFTER INSERT ON order_events WHEN NEW.type =
    'order.cancelled' BEGIN INSERT INTO order_quarters (quarter, placed, shipped, cancelled) VALUES
    ((strftime('%s', NEW.at) + 62135596800) / 900, 0, 0, 1), (-1, 0, 0, 1) ON CONFLICT (quarter) DO
    UPDATE SET placed = order_quarters.placed + excluded.placed, shipped = order_quarters.shipped +
    excluded.shipped, cancelled = order_quarters.cancelled + excluded.cancelled; END;
DROP TABLE order_days;
--- 0012
CREATE INDEX orders_without_date ON orders (status, placed_at, id, pet_id, reference, updated_at)
    WHERE ship_date IS NULL;
