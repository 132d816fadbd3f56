"""The HTTP API, metrics and the console: see docs/web.md.

All of it runs in a process of its own (`serving`), which asks the daemon (`doors.console`) as any client does, by RPC
over a Unix socket, in the name of the user who is logged in. Only this package imports Starlette, uvicorn and Jinja2.
"""
