"""The directory: which public queues, machines, users and distribution lists there are ([MS-MQDMPR] 3.1.1).

`provider` is the seam, `embedded` a directory in one SQLite file, `lookup` the comparisons of queries, and `connection`
what a queue manager does when its directory is slow or away. Nothing here knows of queues with messages, or of RPC.
"""
