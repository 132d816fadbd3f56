"""Private files of the data directory: `private` reads them when they have changed and replaces them atomically, and
`locks` keep processes apart that change the same one."""
