"""DCE/RPC over connections, as [MS-RPCE] extends it.

The protocol is a core without I/O: `server_connection` and `client_connection` take bytes and return events; clocks and
randomness are arguments. `server` and `aio` move the bytes with asyncio, `client` in a blocking program.

`pdu`, `bind_pdus` and `call_pdus` are the PDUs, `splitter` finds them in a stream, `assembly` joins fragments.
`server_binding` negotiates, `association` keeps context handles, a `call` is passed to its interface by the
`dispatcher`. `security` is the interface of security providers: `ntlm`, `kerberos`, `spnego` and `tickets`; `channel`
protects fragments with them, `server_channels` finds out who calls, `verification` checks the trailer of a request.
`epm` and `mgmt` are the endpoint mapper and the management interface. `limits` and `throttle` bound what strangers use.
"""
