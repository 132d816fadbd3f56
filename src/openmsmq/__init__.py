"""openmsmq: an MSMQ queue manager for Linux, with a client for the same protocols."""
