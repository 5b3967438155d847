"""The commands: `flask …`, and `serve` for `python app.py`. `app` uses the groups and `serve`."""
