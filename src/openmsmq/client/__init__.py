"""Client for servers that implement MS-MQMP, for threads (`openmsmq`) and for asyncio (`openmsmq.aio`).

Operations are generators that yield calls and do no I/O: in `operations`, and in `qmcomm`, `remote_read` and `qm2qm`
for queues opened through MS-MQMP, MS-MQRR and MS-MQQP (each an `OpenQueue`). They include the cleanup after an
interrupted call. `retrying` decides which calls are repeated, `reopening` opens lost queues again. `runner` and `pool`
only move bytes, for `asynchronous` and for `sync`, which tools/sync_client.py generates from it.
"""
