"""The Flight process: queues as Apache Arrow record batches, over Arrow Flight. See docs/bulk.md.

The daemon starts it (`server`) and answers it (`doors.flight`); both check requests by the same
table (`processes.flight_requests`).
"""
