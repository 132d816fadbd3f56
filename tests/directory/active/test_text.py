"""Escaping of names and values in filters and distinguished names."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from directory.active.ldap_tree import parse
from openmsmq.directory.active.ldap_text import child, filter_octets, filter_text, name_of, parent_of
from requirements import library

names = st.text(min_size=1, max_size=70)
HOSTILE = ("*()\\\0", "a,b=c+d#e", "#a", " a ", 'q"<>;', "\\", "\\,", "é,ü", "CN=x,CN=y", "*)(objectClass=*")


@given(names, names)
@example(HOSTILE[0], HOSTILE[1])
@example(HOSTILE[2], HOSTILE[3])
@example(HOSTILE[4], HOSTILE[5])
@example(HOSTILE[6], HOSTILE[7])
def test_a_name_comes_back_from_a_distinguished_name(name: str, above: str) -> None:
    parent = child(above, "DC=rig,DC=test")
    made = child(name, parent)
    assert name_of(made) == name
    assert parent_of(made) == parent
    assert parent_of(parent_of(made)) == "DC=rig,DC=test"


@pytest.mark.slow  # the library may not be installed
@given(names)
@example(HOSTILE[0])
@example(HOSTILE[8])
@example(HOSTILE[3])
@example("\n\0")
@example("\r")
def test_the_library_of_ldap_reads_a_name_as_it_was_meant(name: str) -> None:
    dn = library("ldap.dn", "make domain")
    assert [(part[0][0], part[0][1]) for part in dn.str2dn(child(name, "DC=test"))] == [("CN", name), ("DC", "test")]


def test_names_as_a_controller_writes_them_are_read() -> None:
    name = 'CN=a\\,b\\+c\\#d\\"e\\<f\\>g\\3Bh\\3Di * (j),CN=msmq,CN=MQ1,CN=Computers,DC=rig,DC=test'
    assert name_of(name) == 'a,b+c#d"e<f>g;h=i * (j)'
    assert parent_of(name) == "CN=msmq,CN=MQ1,CN=Computers,DC=rig,DC=test"
    assert parent_of("DC=test") == ""


@given(st.text())
@example(HOSTILE[0])
@example(HOSTILE[9])
def test_a_value_stays_one_value_in_a_filter(value: str) -> None:
    test = parse(f"(cn={filter_text(value)})") if value else lambda _: True
    assert test({"cn": [value.encode()]})
    assert not value or not test({"cn": [value.encode() + b"x"]})


@given(st.binary(min_size=1, max_size=20))
def test_octets_stay_octets_in_a_filter(value: bytes) -> None:
    assert parse(f"(mSMQDigests={filter_octets(value)})")({"msmqdigests": [value]})
