"""Private files of the data directory: `private` rereads changed files and replaces files atomically; `locks`
serializes processes that change the same file."""
