"""The record of a message in the store, for all processes that read or write one."""
