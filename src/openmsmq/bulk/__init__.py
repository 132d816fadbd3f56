"""The bulk plane: queues as Apache Arrow record batches, over Arrow Flight. See docs/bulk.md.

Only this package and its users import pyarrow; the queue manager runs without it.
"""
