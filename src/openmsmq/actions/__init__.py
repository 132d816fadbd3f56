"""Operator actions as one table: docs/adding-an-action.md.

A row (`table`) is a function with the types of its input and output, and its command, HTTP operation, role and audit
record. There is one module of rows per noun. `site` is the environment of an action, `by_http` lets a daemon perform
it, `paging` divides lists into pages, and `limits` bounds one request. `console.derived` and `cli.derived` generate
operations and commands from the table.
"""
