"""The vocabulary that server and client share, values only: messages, names, properties, errors, security."""
