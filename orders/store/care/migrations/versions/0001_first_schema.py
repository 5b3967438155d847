"""The first schema. New stores are made as the newest has it (`opening.make_tables`)."""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
