"""Data types shared by server and client: messages, names, properties, errors, security."""
