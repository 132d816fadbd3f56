"""One module per RPC interface: an operation is a small handler that checks its arguments and calls the queue manager.

`mqac` has the automation objects, one class each. `public_queues` uses the directory, `public_objects` has the calls of
qmcomm for it. `fast_path` serves plain calls in batches (docs/native.md).
"""
