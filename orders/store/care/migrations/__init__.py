"""The migrations, in Alembic's form, which `orders.store.care.opening` runs."""
