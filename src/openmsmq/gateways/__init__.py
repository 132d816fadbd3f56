"""The daemon's side of its child processes.

`console` answers the HTTP process with `logins`, `rows`, `openings`, `figures`, `growth`, `remedies`,
`transactions` and `relays`. `flight` answers the Flight process with the operations of `slicing`, `claiming` and
`staging` in a `context`; it needs no pyarrow.
"""
