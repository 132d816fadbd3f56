"""Operator tasks for the command line and other front ends. They print nothing.

- Queues: `naming`, `permissions`, `guards`, `machine_guard`, `overview`, `series`, `explaining` (why messages wait).
- Messages: `selection` finds them, `acting` acts on them, `dead_letters` groups them, `editing` prepares a resend,
  `body_text` and `message_json` show them.
- The machine: `settings`, `backup`, `audit`, `tokens`, `alarms`, `metrics`, `distributed` (transactions).
- Documents: `definitions` compares and applies them; `inventory`, `inventory_export` and `inventory_remarks` describe
  another machine for a move.
- The HTTP API of a daemon: `http_requests`, `web_address`, `checked_json`.
"""
