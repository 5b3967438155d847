"""Several processes of the service behind nginx, over one PostgreSQL and one Redis: a proof."""
