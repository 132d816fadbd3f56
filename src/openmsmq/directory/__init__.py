"""The directory: public queues, machines, users and distribution lists ([MS-MQDMPR] 3.1.1). See docs/directory.md.

`provider` is the interface, asynchronous. `embedded` is a directory in one SQLite file, used in a thread; `active` is
Active Directory by LDAP. `lookup` compares values in queries. `connection` limits the time of queries and notices an
unavailable directory. This package uses neither message queues nor RPC.
"""
