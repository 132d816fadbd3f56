"""The daemon: configuration, listeners, start-up order, shutdown.

`daemon` starts and stops a list of parts (`context`): `calls` is the RPC server, `flight` and `web` supervise the child
processes, `messages` is the service for other queue managers, `oletx_link` connects transaction managers, `relays`
runs relays (`relay_reading`, `relay_settling`, `relay_sending`). `background` tasks run as long as the daemon:
`maintenance` every second, `alarms` every ten seconds. `memory` returns freed memory to the system. `domain_migration`
moves a data directory into a domain, `domain_names` resolves names of the domain's accounts.
"""
