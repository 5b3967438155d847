"""The schema of version 1.0.0. New stores are made of `tables`, as the newest has it."""

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None
