"""The Flight process: queues as Apache Arrow record batches, over Arrow Flight. See docs/bulk.md.

The daemon starts it (`server`) and answers its requests (`gateways.flight`); both check requests against the same table
(`processes.flight_requests`).
"""
