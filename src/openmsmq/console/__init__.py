"""The HTTP API, metrics and the console: see docs/web.md.

It runs in its own process (`serving`) and calls the daemon (`gateways.console`) by RPC over a Unix socket as the
logged-in user. Only this package imports Starlette, uvicorn and Jinja2.

`application` routes requests to the operations of a `table`, which `openapi` describes; `derived` generates operations
from the table of actions, with `examples` for the document. `callers` keeps sessions, `managers` keeps clients of the
daemon, `bounded` limits connections. `history` keeps one day of figures for `charts` and `live`; `webhook` and
`mailing` deliver alarms. `pages`, `accounts_pages` and `forms` render templates.
"""
