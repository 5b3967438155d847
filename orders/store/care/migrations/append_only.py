"""Tables to which rows are only ever added, whatever this program or a person tries."""

from alembic import op


def forbid_changes(table: str, words: str) -> None:
    """Have the database refuse, in these words, to change or delete a row of the table."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{words}'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_never_changed() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{words}' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for verb in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_never_changed()"
        )
