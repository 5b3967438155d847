"""The OpenAPI documents: `document` makes them; views declare their part with its `operation`."""
