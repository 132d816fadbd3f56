"""Accounts: `users` is the file of users and groups, `login_attempts` counts the logins of all entry points."""
