"""One module per RPC interface: an operation is a small handler that checks its arguments and calls the queue manager.

`mqac` implements the automation objects, one class each. `public_queues` uses the directory; `public_objects`
implements the calls of qmcomm for public queues. `fast_path` serves simple calls in batches (docs/native.md).
"""
