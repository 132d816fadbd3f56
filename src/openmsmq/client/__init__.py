"""A client of any server that speaks MS-MQMP, for threads (`openmsmq`) and for asyncio (`openmsmq.aio`).

What an operation does is written once, in `operations`, without input or output; two thin layers move the bytes.
"""
