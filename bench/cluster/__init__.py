"""Several processes of the service behind nginx, on one PostgreSQL and one Redis: proof and speed."""
