"""The migrations, in Alembic's form. `orders.store.opening` runs them."""
