"""The common schema of the configuration file, environment and command line."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from msrpc.rpc.pdu import AuthLevel
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.interfaces import check_interfaces
from openmsmq.server.loading import load


def test_the_command_line_overrides_the_environment_which_overrides_the_file(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('rpc_port = 1\nlisten = "127.0.0.2"\nlog_level = "error"\n')
    environment = {"OPENMSMQ_RPC_PORT": "2", "OPENMSMQ_LISTEN": "127.0.0.3", "OTHER": "x"}
    configuration = load(file, environment, {"rpc_port": 3, "data_dir": None})
    assert (configuration.rpc_port, configuration.listen, configuration.log_level) == (3, "127.0.0.3", "error")
    assert configuration.data_dir == Path("/var/lib/openmsmq")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rpc_port": 70000}, "rpc_port is 70000; allowed: 0 to 65535"),
        ({"rpc_port": "x"}, "a whole number"),
        ({"listen": "host.example"}, "an IPv4 or IPv6 address"),
        ({"minimum_level": "high"}, "one of none, connect"),
        ({"logins": "kerberos"}, "kerberos_keytab is None; allowed: a file"),
        ({"logins": "ntlm, ntlm"}, "each once"),
        ({"logins": ""}, "one or more of kerberos, ntlm"),
        ({"logins": "basic"}, "one or more of kerberos, ntlm"),
        ({"log_format": "xml"}, "one of text, json"),
        ({"domain_administrators": "S-1-5-32-544"}, "SIDs of a domain"),
        ({"log_level": "loud"}, "debug, info"),
        ({"allow_anonymous": "perhaps"}, "one of 1, true"),
        ({"machine_quota": -1}, "4294967295"),
        ({"interface_levels": "qmcomm=x"}, "qmcomm"),
        ({"port_offset": -1}, "0 or more"),
        ({"allow_nonauthenticated_rpc": True, "allow_anonymous": False}, "c is True; allowed: false, because"),
        ({"time_to_reach_queue": 0}, "1 to 4294967294 seconds"),
        ({"report_queue": "DIRECT=OS:h\\q"}, "PUBLIC= and the GUID"),
        ({"report_queue": "PUBLIC=1"}, "PUBLIC= and the GUID"),
        ({"time_to_reach_queue": 0xFFFFFFFF}, "1 to 4294967294 seconds"),
    ],
)
def test_a_wrong_value_is_named_with_the_allowed_ones(options, said):
    with pytest.raises(ConfigurationError, match=said):
        load(environment={}, options=options)


def test_an_unknown_setting_in_the_file_is_refused(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("colour = 1\n")
    with pytest.raises(ConfigurationError, match="unknown setting 'colour'"):
        load(file, {})


def test_anonymous_callers_are_accepted_on_loopback_only_unless_asked_for():
    assert Configuration().accepts_anonymous
    assert not Configuration(listen="0.0.0.0").accepts_anonymous
    assert Configuration(listen="0.0.0.0", allow_anonymous=True).accepts_anonymous
    assert not Configuration(allow_anonymous=False).accepts_anonymous


def test_remote_readers_need_privacy_off_loopback_unless_told_otherwise():
    assert Configuration().minimum_level_of("RemoteRead") is AuthLevel.NONE
    assert Configuration(listen="0.0.0.0").minimum_level_of("RemoteRead") is AuthLevel.PKT_PRIVACY
    assert Configuration(listen="0.0.0.0").minimum_level_of("qmcomm") is AuthLevel.NONE
    told = Configuration(listen="0.0.0.0", interface_levels="RemoteRead=integrity")
    assert told.minimum_level_of("RemoteRead") is AuthLevel.PKT_INTEGRITY


def test_each_interface_has_its_own_level():
    configuration = load(environment={}, options={"interface_levels": "qmcomm=connect, qmcomm2=privacy"})
    assert configuration.minimum_level_of("qmcomm2") == AuthLevel.PKT_PRIVACY
    assert configuration.minimum_level_of("qmmgmt") == AuthLevel.NONE
    check_interfaces(configuration)
    with pytest.raises(ConfigurationError, match="allowed: qmcomm, qmcomm2, qmmgmt"):
        check_interfaces(Configuration(interface_levels="other=none"))


SITE = '[[foreign_site]]\nidentifier = "6a2c1f00-0000-0000-0000-00000000000a"\nname = "mainframe"\n'


def test_foreign_sites_are_tables_of_the_file(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(SITE + 'machines = ["SAPHOST", "192.0.2.7"]\n')
    (site,) = load(file, {}).foreign_site
    assert (str(site.identifier), site.name) == ("6a2c1f00-0000-0000-0000-00000000000a", "mainframe")
    assert site.machines == ("SAPHOST", "192.0.2.7")
    assert load(environment={}).foreign_site == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('foreign_site = "x"', r"\[\[foreign_site\]\] tables"),
        ('[[foreign_site]]\nidentifier = "x"\nmachines = ["A"]', r"identifier\) is 'x'; allowed: a GUID"),
        (SITE, r"machines\) is None; allowed: a list"),
        (SITE + "machines = []", "one or more"),
        (SITE + 'machines = ["A;B"]', "computer names or addresses"),
        (SITE + 'machines = ["A", "a"]', "'a'; allowed: in one site only"),
        (SITE + 'machines = ["A"]\n' + SITE + 'machines = ["B"]', "in one site only"),
        (SITE + 'machines = ["HERE"]', "'here'; allowed: other machines than this one"),
        (SITE + 'machines = ["LocalHost"]', "'localhost'; allowed: other machines than this one"),
        (SITE + 'machine = ["A"]', "the keys identifier, name, machines"),
        (SITE.replace("mainframe", "x" * 125) + 'machines = ["A"]', "at most 124 characters"),
    ],
)
def test_an_invalid_foreign_site_is_refused(tmp_path, text, said):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load(file, {}, {"computer_name": "Here"})


def test_message_security_settings_are_a_table_of_the_file(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[security]\nallow_sha1 = true\nminimum_rsa_bits = 2048\n")
    security = load(file, {}).security
    assert (security.allow_sha1, security.allow_md5, security.minimum_rsa_bits) == (True, False, 2048)
    switched_on = [name for name, value in asdict(load(environment={}).security).items() if value is True]
    assert switched_on == ["reject_enhanced_rc2_using_40_bit_keys"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security = 1", r"a \[security\] table"),
        ("[security]\nallow_md6 = true", "allow_md6'; allowed: the keys allow_md2"),
        ("[security]\nallow_md5 = 1", "allow_md5 is 1; allowed: a boolean"),
        ("[security]\nminimum_rsa_bits = true", "minimum_rsa_bits is True; allowed: a whole number"),
        ("[security]\nminimum_rsa_bits = 511", "512 to 8192"),
        ("[security]\nown_rsa_bits = 512", "1024 to 4096"),
    ],
)
def test_an_invalid_message_security_setting_is_refused(tmp_path, text, said):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load(file, {})


@pytest.mark.parametrize(
    ("peers", "host", "port"),
    [
        ("b=fe80::1", "fe80::1", 2103), ("b=[fe80::1]", "fe80::1", 2103), ("b=[fe80::1]:2104", "fe80::1", 2104),
        ("b=::1", "::1", 2103), ("b=server", "server", 2103), ("b = server:2104", "server", 2104),
    ],
)  # fmt: skip
def test_the_address_of_a_peer_may_be_ipv6(peers, host, port):
    assert load(None, {}, {"peers": peers}).hosts_of_peers == {"b": (host, port)}


@pytest.mark.parametrize(
    "peers", ["b=fe80::1::2", "b=a:b:c", "b=[server]:1", "b=[::1", "b=[::1]2104", "b=host:", "b=h:0"]
)
def test_an_invalid_peer_address_is_refused(peers):
    with pytest.raises(ConfigurationError, match=r"NAME=\[IPv6 address\]:port"):
        load(None, {}, {"peers": peers})


def test_distributed_transactions_need_a_level_and_a_short_name():
    assert Configuration().transaction_security is None
    assert Configuration(distributed_transactions="on").transaction_security.value == "none"
    assert Configuration(distributed_transactions="incoming").transaction_security.value == "incoming"
    keytab = Path("/etc/krb5.keytab")
    mutual = Configuration(distributed_transactions="on", peer_login="kerberos", kerberos_keytab=keytab)
    assert mutual.transaction_security.value == "mutual"
    with pytest.raises(ConfigurationError, match="allowed: one of off, none, incoming, mutual, on"):
        Configuration(distributed_transactions="yes")
    with pytest.raises(ConfigurationError, match="more than 15 characters; see computer_name"):
        Configuration(distributed_transactions="on", computer_name="A" * 16)
    assert Configuration(computer_name="A" * 16).transaction_security is None
