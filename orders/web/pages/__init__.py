"""The pages for people, the console and the API documentation. `app.py` uses `site.register`."""
