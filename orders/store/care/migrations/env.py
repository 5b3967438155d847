"""How Alembic runs the migrations: over the connection that `care.opening` hands it."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
