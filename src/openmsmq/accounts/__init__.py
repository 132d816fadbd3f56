"""Accounts: `users` is the file of users and groups, `login_links` has one-time login links, and `login_attempts`
counts and throttles the logins of all entry points."""
