"""The bulk plane for applications: the client, and the columns of record batches. See docs/bulk.md.

Only this package, the Flight process and Spark import pyarrow; the queue manager runs without it.
"""
