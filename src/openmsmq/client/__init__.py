"""A client of any server that speaks MS-MQMP, for threads (`openmsmq`) and for asyncio (`openmsmq.aio`).

What an operation does is written once, without input or output: in `operations`, and in `qmcomm` and `remote_read` for
queues opened through MS-MQMP and MS-MQRR. Two thin layers move the bytes.
"""
