-- What version 1.0.0 made a store of, for good: the tests of migrations begin with it.

CREATE TABLE orders (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	pet_id BIGINT NOT NULL,
	quantity INTEGER NOT NULL,
	ship_date VARCHAR(24),
	status VARCHAR(16) NOT NULL,
	placed_at VARCHAR(24) NOT NULL,
	updated_at VARCHAR(24) NOT NULL,
	reference VARCHAR(64),
	note VARCHAR(500),
	item VARCHAR(200),
	ship_to VARCHAR(500),
	tracking VARCHAR(100),
	CONSTRAINT orders_status CHECK (status IN ('pending', 'shipped', 'cancelled')),
	CONSTRAINT orders_quantity CHECK (quantity BETWEEN 1 AND 2147483647),
	CONSTRAINT orders_pet_id CHECK (pet_id >= 1),
	CONSTRAINT orders_shipped_has_date CHECK (status <> 'shipped' OR ship_date IS NOT NULL),
	CONSTRAINT orders_tracked_has_shipped CHECK (status = 'shipped' OR tracking IS NULL)
);

CREATE INDEX orders_by_status_ship_date ON orders (status, ship_date, id, placed_at, pet_id, reference, updated_at);

CREATE INDEX orders_by_updated_at ON orders (updated_at, id);

CREATE INDEX orders_by_reference ON orders (reference COLLATE NOCASE, id, reference) WHERE reference IS NOT NULL;

CREATE INDEX orders_by_status_placed_at ON orders (status, placed_at, id, ship_date, pet_id, reference, updated_at);

CREATE INDEX orders_without_date ON orders (status, placed_at, id, pet_id, reference, updated_at) WHERE ship_date IS NULL;

CREATE INDEX orders_by_status ON orders (status, id);

CREATE INDEX orders_by_pet ON orders (pet_id, id);

CREATE TABLE order_words (
	order_id BIGINT NOT NULL,
	word VARCHAR(64) NOT NULL,
	PRIMARY KEY (order_id, word)
)
 WITHOUT ROWID
;

CREATE INDEX order_words_by_word ON order_words (word, order_id);

CREATE TABLE order_quarters (
	quarter INTEGER NOT NULL,
	placed BIGINT NOT NULL,
	shipped BIGINT NOT NULL,
	cancelled BIGINT NOT NULL,
	PRIMARY KEY (quarter)
);

CREATE TABLE api_keys (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(255) NOT NULL,
	prefix VARCHAR(16) NOT NULL,
	secret_hash BLOB NOT NULL,
	previous_hash BLOB,
	previous_until VARCHAR(24),
	"plan" VARCHAR(64) NOT NULL,
	per_minute INTEGER,
	per_day INTEGER,
	plan_revision INTEGER NOT NULL,
	scopes VARCHAR(64) NOT NULL,
	created_at VARCHAR(24) NOT NULL,
	last_used_at VARCHAR(24),
	expires_at VARCHAR(24),
	revoked_at VARCHAR(24),
	banned_until VARCHAR(24)
);

CREATE UNIQUE INDEX api_keys_by_previous_secret ON api_keys (previous_hash);

CREATE UNIQUE INDEX api_keys_by_secret ON api_keys (secret_hash);

CREATE TABLE audit_trail (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at VARCHAR(24) NOT NULL,
	who VARCHAR(255) NOT NULL,
	action VARCHAR(32) NOT NULL,
	subject VARCHAR(512) NOT NULL
);

CREATE TABLE pets (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	category_id BIGINT,
	status VARCHAR(16) NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT pets_status CHECK (status IN ('available', 'pending', 'sold'))
);

CREATE TABLE webhook_endpoints (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	url VARCHAR(2048) NOT NULL,
	events VARCHAR(255) NOT NULL,
	allow_private BOOLEAN NOT NULL,
	secret VARCHAR(128) NOT NULL,
	previous_secret VARCHAR(128),
	previous_until VARCHAR(24),
	created_at VARCHAR(24) NOT NULL,
	position BIGINT NOT NULL,
	tries INTEGER NOT NULL,
	next_at VARCHAR(24),
	paused_at VARCHAR(24),
	paused_because VARCHAR(255),
	claimed_by VARCHAR(32),
	claimed_until VARCHAR(24)
);

CREATE TABLE store (
	id INTEGER NOT NULL,
	store_id VARCHAR(32) NOT NULL,
	demo_key_id INTEGER,
	clock_floor VARCHAR(24),
	misdated_events BIGINT,
	PRIMARY KEY (id),
	FOREIGN KEY(demo_key_id) REFERENCES api_keys (id)
);

CREATE TABLE order_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	type VARCHAR(24) NOT NULL,
	order_id INTEGER NOT NULL,
	at VARCHAR(24) NOT NULL,
	actor VARCHAR(32) NOT NULL,
	request_id VARCHAR(32),
	pet_id BIGINT NOT NULL,
	quantity INTEGER NOT NULL,
	ship_date VARCHAR(24),
	status VARCHAR(16) NOT NULL,
	placed_at VARCHAR(24) NOT NULL,
	updated_at VARCHAR(24) NOT NULL,
	reference VARCHAR(64),
	note VARCHAR(500),
	item VARCHAR(200),
	ship_to VARCHAR(500),
	tracking VARCHAR(100),
	CONSTRAINT order_events_type CHECK (type IN ('order.placed', 'order.changed', 'order.shipped', 'order.cancelled', 'order.reopened', 'order.imported', 'order.forgotten')),
	FOREIGN KEY(order_id) REFERENCES orders (id)
);

CREATE INDEX order_events_by_order ON order_events (order_id, id);

CREATE INDEX order_events_by_type ON order_events (type, id);

CREATE TABLE idempotency_keys (
	key_id INTEGER NOT NULL,
	version INTEGER NOT NULL,
	value VARCHAR(255) NOT NULL,
	event_id INTEGER,
	at VARCHAR(24) NOT NULL,
	request VARCHAR(64) NOT NULL,
	answer TEXT NOT NULL,
	PRIMARY KEY (key_id, version, value),
	FOREIGN KEY(key_id) REFERENCES api_keys (id),
	FOREIGN KEY(event_id) REFERENCES order_events (id)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (at);

CREATE TABLE webhook_refused (
	endpoint_id INTEGER NOT NULL,
	event_id INTEGER NOT NULL,
	tries INTEGER NOT NULL,
	next_at VARCHAR(24) NOT NULL,
	PRIMARY KEY (endpoint_id, event_id),
	FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id),
	FOREIGN KEY(event_id) REFERENCES order_events (id)
);

CREATE INDEX webhook_refused_by_next ON webhook_refused (endpoint_id, next_at, event_id);

CREATE TABLE webhook_deliveries (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	endpoint_id INTEGER NOT NULL,
	event_id INTEGER,
	at VARCHAR(24) NOT NULL,
	outcome VARCHAR(16) NOT NULL,
	status INTEGER,
	fault VARCHAR(255),
	milliseconds INTEGER NOT NULL,
	answer VARCHAR(200) NOT NULL,
	FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id),
	FOREIGN KEY(event_id) REFERENCES order_events (id)
);

CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (event_id);

CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (at);

CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint_id, id);

CREATE TRIGGER order_events_no_update BEFORE UPDATE OF id, type, order_id, at, actor, request_id, pet_id, quantity, ship_date, status, placed_at, updated_at, item ON order_events
BEGIN
    SELECT RAISE(ABORT, 'the event log is never changed');
END;

CREATE TRIGGER order_events_only_forget BEFORE UPDATE ON order_events
WHEN coalesce(NEW.reference, NEW.note, NEW.ship_to, NEW.tracking) IS NOT NULL
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

CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
