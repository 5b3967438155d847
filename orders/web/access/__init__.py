"""Who may send requests, and how many: keys, limits, bans."""
