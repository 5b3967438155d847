"""The pages for people, the console and the API documentation.

`application` uses `site.register`, and the start `site.load`.
"""
