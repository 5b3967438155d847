"""Headers that every answer carries, so that a browser makes nothing of it but what it is.

Data are no page: nothing in an answer is run, framed, guessed to be of another type, or kept by a
cache, wherever a browser is pointed at it. A response that has a header of these names already, as
a page with a policy of its own has, keeps it.

Left out, because here they would protect nothing: Strict-Transport-Security belongs to the server
with TLS in front; Referrer-Policy to what has links; X-Frame-Options says what frame-ancestors
says; Cross-Origin-* guard what a browser would fetch with cookies, and keys are none.
"""

from __future__ import annotations

PROTECTION = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
