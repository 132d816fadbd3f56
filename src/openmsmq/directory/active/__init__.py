"""Active Directory as the directory of `provider`: [MS-MQDSSM].

`ldap_text` quotes names and values for LDAP, `schema` is the table of properties and attributes, `filters` converts
queries to LDAP filters, `descriptors` translates rights. `session` speaks LDAP through a library, `controllers` pools
sessions and fails over to the next controller; `objects`, `provider`, `accounts` and `examining` use both.
"""
