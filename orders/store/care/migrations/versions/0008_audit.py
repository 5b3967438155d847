"""The audit trail."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def words(length: int) -> sa.String:
    """Return the column type of a text, whose length PostgreSQL is not to judge."""
    return sa.String(length).with_variant(sa.Text(), "postgresql")


def upgrade() -> None:
    """Create the table, to which rows are only ever added."""
    op.create_table(
        "audit_trail",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column(
            "at",
            sa.DateTime(timezone=True).with_variant(sa.String(24), "sqlite"),
            nullable=False,
        ),
        sa.Column("who", words(255), nullable=False),
        sa.Column("action", words(32), nullable=False),
        sa.Column("subject", words(512), nullable=False),
        sqlite_autoincrement=True,
    )
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_trail_no_{verb.lower()} BEFORE {verb} ON audit_trail "
                "BEGIN SELECT RAISE(ABORT, 'the audit trail is never changed'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION audit_trail_never_changed() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit trail is never changed' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for verb in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(
            f"CREATE TRIGGER audit_trail_no_{verb.lower()} BEFORE {verb} ON audit_trail "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_trail_never_changed()"
        )
