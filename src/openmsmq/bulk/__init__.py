"""The bulk plane for programs: its client, and the columns of its record batches. See docs/bulk.md.

Only this package, the Flight process and Spark import pyarrow; the queue manager runs without it.
"""
