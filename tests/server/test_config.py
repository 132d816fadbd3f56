"""The common schema of the configuration file, environment and command line."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.sockets import LEAST_DEAD_PEER
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


DOMAIN = {"kerberos_keytab": Path("/etc/krb5.keytab"), "directory_provider": "active-directory"}
LIMITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # allowed, not allowed, and what is said of the latter
    ({"alarm_quota_percent": 100}, {"alarm_quota_percent": 101}, "alarm_quota_percent is 101; allowed: 0 to 100"),
    ({"alarm_quota_percent": 0}, {"alarm_quota_percent": -1}, "alarm_quota_percent is -1; allowed: 0 or more %"),
    ({"metrics_queues": 0}, {"metrics_queues": -1}, "metrics_queues is -1; allowed: 0 to 1000"),
    ({"metrics_queues": 1000}, {"metrics_queues": 1001}, "metrics_queues is 1001; allowed: 0 to 1000"),
    ({"com_ping_seconds": 0.1}, {"com_ping_seconds": 0.0}, "com_ping_seconds is 0.0; allowed: more than 0"),
    ({"rpc_port": 0}, {"rpc_port": -1}, "rpc_port is -1; allowed: 0 to 65535"),
    ({"rpc_port": 65535}, {"rpc_port": 65536}, "rpc_port is 65536; allowed: 0 to 65535"),
    ({"port_offset": 65535 - 18022}, {"port_offset": 65536 - 18022}, "port_offset is 47514; allowed: ports to 65535"),
    ({"machine_quota": 0}, {"machine_quota": -1}, "machine_quota is -1; allowed: 0 to 4294967295"),
    (
        {"journal_quota": 0xFFFFFFFF},
        {"journal_quota": 1 << 32},
        "journal_quota is 4294967296; allowed: 0 to 4294967295",
    ),
    ({"max_queues": 1}, {"max_queues": 0}, "max_queues is 0; allowed: 1 or more"),
    ({"max_sessions_per_peer": 1}, {"max_sessions_per_peer": 0}, "max_sessions_per_peer is 0; allowed: 1 or more"),
    ({"time_to_reach_queue": 1}, {"time_to_reach_queue": 0}, "allowed: 1 to 4294967294 seconds"),
    ({"time_to_reach_queue": 0xFFFFFFFE}, {"time_to_reach_queue": 0xFFFFFFFF}, "allowed: 1 to 4294967294 seconds"),
    ({"stage_time_limit": 180}, {"stage_time_limit": 179}, "stage_time_limit is 179; allowed: 180 seconds or more"),
    ({"minimum_free_megabytes": 0}, {"minimum_free_megabytes": -1}, "minimum_free_megabytes is -1; allowed: 0 or more"),
    ({"checkpoint_megabytes": 1}, {"checkpoint_megabytes": 0}, "checkpoint_megabytes is 0; allowed: 1 or more"),
    ({"audit_megabytes": 1}, {"audit_megabytes": 0}, "audit_megabytes is 0; allowed: 1 or more"),
    ({"shutdown_grace_seconds": 0}, {"shutdown_grace_seconds": -1}, "shutdown_grace_seconds is -1; allowed: 0 or more"),
    ({"dead_peer_seconds": LEAST_DEAD_PEER}, {"dead_peer_seconds": LEAST_DEAD_PEER - 1}, "dead_peer_seconds is"),
    ({"peers": "b=h:65535"}, {"peers": "b=h:65536"}, "peers is 'b=h:65536'; allowed: NAME=host"),
    ({"peers": "b=h:1"}, {"peers": "b=h:0"}, "peers is 'b=h:0'; allowed: NAME=host"),
    (
        {"computer_name": "A" * 15, "distributed_transactions": "none"},
        {"computer_name": "A" * 16, "distributed_transactions": "none"},
        "more than 15 characters",
    ),
]


@pytest.mark.parametrize(("allowed", "refused", "said"), LIMITS, ids=[next(iter(one[1])) for one in LIMITS])
def test_a_value_at_its_limit_is_allowed_and_the_next_one_refused(allowed, refused, said):
    configuration = Configuration(**allowed)
    assert {name: getattr(configuration, name) for name in allowed} == allowed
    with pytest.raises(ConfigurationError, match=said):
        Configuration(**refused)


CERTIFICATE, KEY = Path("/etc/openmsmq/certificate.pem"), Path("/etc/openmsmq/key.pem")
NEEDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # settings, others with which they are allowed, and what is said without these
    ({"web": True, "web_listen": "0.0.0.0"}, {"web_certificate": CERTIFICATE, "web_key": KEY},
     "web_certificate is None; allowed: a file, because passwords"),
    ({"web": True, "web_listen": "0.0.0.0"}, {"web": False}, "web_certificate is None"),
    ({"web": True, "web_listen": "192.0.2.1"}, {"web_listen": "127.0.0.2"}, "web_certificate is None"),
    ({"flight": True, "listen": "0.0.0.0"}, {"flight_certificate": CERTIFICATE, "flight_key": KEY},
     "flight_certificate is None; allowed: a file, because passwords"),
    ({"flight": True, "listen": "0.0.0.0"}, {"flight": False}, "flight_certificate is None"),
    ({"flight": True, "listen": "::"}, {"listen": "::1"}, "flight_certificate is None"),
    ({"web_certificate": CERTIFICATE}, {"web_key": KEY}, "web_key is None; allowed: given if and only if"),
    ({"web_key": KEY}, {"web_certificate": CERTIFICATE}, "web_key is .*; allowed: given if and only if"),
    ({"flight_certificate": CERTIFICATE}, {"flight_key": KEY}, "flight_key is None; allowed: given if and only if"),
    ({"flight_key": KEY}, {"flight_certificate": CERTIFICATE}, "flight_key is .*; allowed: given if and only if"),
    ({"peer_user": "a"}, {"peer_password_file": KEY}, "peer_password_file is None; allowed: given if and only if"),
    ({"peer_password_file": KEY}, {"peer_user": "a"}, "peer_password_file is .*; allowed: given if and only if"),
    ({"peer_login": "kerberos"}, {"kerberos_keytab": KEY}, "allowed: a file, because peer_login is kerberos"),
    ({"peer_login": "kerberos", "kerberos_keytab": KEY, "peer_user": "a", "peer_password_file": KEY},
     {"peer_login": "ntlm"}, "peer_user is 'a'; allowed: none, because peer_login is kerberos"),
    ({"logins": "ntlm, kerberos"}, {"kerberos_keytab": KEY}, "allowed: a file, because logins has kerberos"),
    ({"audit": False, "audit_required": True}, {"audit": True}, "audit is False; allowed: true, because"),
    ({"audit": False, "audit_required": True}, {"audit_required": False}, "audit is False; allowed: true, because"),
    (DOMAIN, {"directory_controllers": "dc1.example.com"}, "directory_controllers is ''"),
    (DOMAIN, {"directory_domain": "example.com"}, "directory_controllers is ''"),
    (DOMAIN | {"directory_domain": "example.com", "kerberos_keytab": None}, {"kerberos_keytab": KEY},
     "kerberos_keytab is None; allowed: given, because directory_provider"),
    ({"directory_domain": "a b;c"}, {"directory_domain": "example.com"}, "allowed: the DNS name of a domain"),
    ({"allow_anonymous": False, "allow_nonauthenticated_rpc": True}, {"allow_anonymous": None}, "allow_non.* is True"),
    ({"allow_anonymous": False, "remote_read_allow_none_security_client": True}, {"allow_anonymous": True},
     "remote_read_allow_none_security_client is True; allowed: false"),
    ({"alarm_webhook": "http://h/"}, {"web": True}, "alarm_webhook is .*; allowed: unset, because web is not set"),
    ({"alarm_mail_to": "a@b"}, {"web": True}, "alarm_mail_to is 'a@b'; allowed: unset, because web is not set"),
    ({"oidc_issuer": "https://h/", "oidc_client_id": "c"}, {"web": True}, "oidc_issuer is .*; allowed: unset, because"),
    ({"oidc_issuer": "https://h/", "web": True}, {"oidc_client_id": "c"}, "oidc_client_id is .*; allowed: given if"),
    ({"oidc_client_id": "c", "web": True}, {"oidc_issuer": "https://h/"}, "oidc_client_id is 'c'; allowed: given if"),
    ({"oidc_client_secret_file": KEY}, {"oidc_issuer": "https://h/", "oidc_client_id": "c", "web": True},
     "oidc_client_secret_file is .*; allowed: unset"),
    ({"alarm_mail_user": "a"}, {"alarm_mail_password_file": KEY}, "alarm_mail_user is 'a'; allowed: set together"),
    ({"alarm_mail_password_file": KEY}, {"alarm_mail_user": "a"}, "alarm_mail_user is ''; allowed: set together"),
    ({"alarm_mail_user": "a", "alarm_mail_password_file": KEY, "alarm_mail_tls": "none"}, {"alarm_mail_tls": "tls"},
     "alarm_mail_tls is 'none'; allowed: starttls or tls"),
    ({"alarm_mail_user": "a", "alarm_mail_password_file": KEY, "alarm_mail_tls": "none"},
     {"alarm_mail_user": "", "alarm_mail_password_file": None}, "alarm_mail_tls is 'none'; allowed: starttls or tls"),
    ({"backup_directory": Path("/var/lib/openmsmq/backups")}, {"data_dir": Path("/srv/openmsmq")},
     "backup_directory is .*; allowed: outside of the data directory"),
    ({"backup_directory": Path("/var/lib/openmsmq")}, {"backup_directory": Path("/var/lib/openmsmq-backups")},
     "backup_directory is .*; allowed: outside of the data directory"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "others", "said"), NEEDS)
def test_settings_that_need_others_are_refused_without_them(settings, others, said):
    with pytest.raises(ConfigurationError, match=said):
        Configuration(**settings)
    Configuration(**{**settings, **others})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("new_queue_access", "nobody", "one of auto, everyone, owner"),
        ("name_change", "renamed", "one of ask, moved, copied"),
        ("directory_provider", "ldap", "one of sqlite, active-directory, none"),
        ("com_level", "high", "one of none, connect"),
        ("peer_login", "basic", "one of ntlm, kerberos"),
        ("web_listen", "localhost", "an IPv4 or IPv6 address"),
        ("aliases", "a, b;c", "computer names, separated by commas"),
        ("alarm_mail_tls", "ssl", "one of starttls, tls, none"),
        ("alarm_mail_server", "a b", "HOST or HOST:PORT"),
        ("alarm_mail_from", "nobody", "addresses such as"),
        ("alarm_queue", "DIRECT=X:y", "the name of a queue"),
        ("alarm_by_queue", "orders", "QUEUE:ALARM=VALUE"),
        ("trace_endpoint", "ftp://host/", "a URL that begins with http"),
        ("trace_endpoint", "http://", "a URL that begins with http"),
        ("trace_endpoint", "http://[::1", "a URL that begins with http"),
        ("oidc_user_claim", "", "the name of a claim"),
        ("report_queue", "PUBLIC=6a2c1f00-0000-0000-0000-00000000000a;JOURNAL", "PUBLIC= and the GUID"),
    ],
)
def test_a_word_outside_the_allowed_ones_is_refused(name, value, allowed):
    with pytest.raises(ConfigurationError, match=f"^{name}.* is .*; allowed: {allowed}".replace("from", "to")):
        Configuration(**{name: value})


@pytest.mark.parametrize("issuer", ["https://h/?a", "https://h/#a", "http://h.example/"])
def test_a_provider_of_logins_has_a_safe_url_without_query(issuer):
    with pytest.raises(ConfigurationError, match=r"oidc_issuer is .*; allowed: a URL that begins with https"):
        Configuration(oidc_issuer=issuer, oidc_client_id="c", web=True)


def test_an_unknown_setting_in_the_file_is_refused(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("color = 1\n")
    with pytest.raises(ConfigurationError, match="unknown setting 'color'"):
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
    shown = load(file, {}).described()["security"]
    assert (shown["value"]["allow_sha1"], shown["value"]["minimum_rsa_bits"]) == (True, 2048)
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


@pytest.mark.parametrize("name", ["bad name;\\", "a.b.c", "A" * 64, "a;b", "a\\b"])
def test_a_computer_name_is_a_name_in_path_names(name: str) -> None:
    with pytest.raises(ConfigurationError, match="63 characters"):
        Configuration(computer_name=name)
    assert Configuration(computer_name="A" * 63, distributed_transactions="off").machine_name == "A" * 63
