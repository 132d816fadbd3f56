"""The record of a message in the store."""
