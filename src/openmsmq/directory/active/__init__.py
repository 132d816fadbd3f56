"""Active Directory as the directory of `provider`: [MS-MQDSSM].

`ldap_text` writes names and values as LDAP wants them, `schema` is the table of properties and attributes, `filters`
turns queries into filters, `descriptors` translates rights. `session` speaks LDAP by a library, `controllers` keeps
sessions and goes to the next controller, `objects`, `provider`, `accounts` and `examining` use both.
"""
