"""The migrations, in Alembic's form. `orders.store.care.opening` runs them."""
