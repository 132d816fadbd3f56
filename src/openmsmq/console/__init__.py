"""The HTTP API, metrics and the console: see docs/web.md.

A process of its own (`serving`). It calls the daemon (`doors.console`) by RPC over a Unix socket, as the user who is
logged in. Only this package imports Starlette, uvicorn and Jinja2.

`application` routes requests to the operations of a `table`, which `openapi` describes; `derived` generates operations
from the table of actions, with `examples` for the document. `callers` keeps sessions, `managers` are clients of the
daemon, `bounded` limits connections. `history` keeps the figures of a day for `charts` and `live`; `webhook` and
`mailing` deliver alarms. `pages`, `accounts_pages` and `forms` render templates.
"""
