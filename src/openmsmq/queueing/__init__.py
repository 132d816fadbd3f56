"""The queue manager itself ([MS-MQDMPR]): queues, positions, cursors, transactions, journals, dead letters, quotas.

No sockets and no RPC. The clock and randomness are passed in, so the same inputs give the same outputs.
"""
