"""The HTTP API, metrics and the console: see docs/web.md.

`door`, `logins`, `rows`, `openings`, `figures` and `growth` belong to the daemon. Everything else runs in a process of
its own (`serving`), which asks the daemon as any client does, by RPC over a Unix socket, in the name of the user who is
logged in. Only that half imports Starlette, uvicorn, msgspec and Jinja2.
"""
