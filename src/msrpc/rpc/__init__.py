"""DCE/RPC over connections, as [MS-RPCE] extends it.

The protocol is a core without I/O: `ServerConnection` and `ClientConnection` take bytes and give events; clocks and
randomness are arguments. `server` and `client` are the thin layers that move the bytes.

| module | what it holds |
|---|---|
| `pdu`, `bind_pdus`, `call_pdus`, `splitter` | the PDUs and how a stream of bytes becomes PDUs |
| `faults`, `errors` | status codes that travel, and the exceptions for them |
| `security` | what a security provider must offer, and how a fragment is protected with it |
| `ntlm`, `ntlm_messages`, `kerberos` (`pac`), `spnego` (`der`) | the providers |
| `verification` | the verification trailer after a request's stub |
| `association`, `assembly`, `limits` | association groups and context handles; incomplete requests; bounds |
| `call`, `server_connection`, `server_binding`, `client_connection` | the two sides of a connection |
| `server`, `client`, `aio` | asyncio server, blocking client, asyncio client |
| `epm`, `tower`, `mgmt` | endpoint mapper and management interface, ready to serve |
| `credentials`, `users` | a client's credentials; the file of users that a server knows |
"""
