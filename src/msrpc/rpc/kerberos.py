"""Kerberos, both roles ([MS-KILE], RFC 4120 and 4121): auth type 16, or within SPNEGO. The protocol is the library's,
MIT's through `gssapi` (the extra `msrpc[kerberos]`), which is loaded on first use.

The exchange has three legs in DCE style ([MS-KILE] 3.4.5.1): AP-REQ, AP-REP, AP-REP of the client. The acceptor needs
no network: its keys are in a keytab. The library checks the ticket and its times, rejects replayed authenticators, and
checks the server's signature of the PAC with the key of the keytab. Only a domain controller can check its own
signature.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msrpc.errors import AuthenticationError, KerberosUnavailable, LocalProtocolError, raised_class
from msrpc.rpc import der
from msrpc.rpc.channel import SEC_TRAILER_ALIGNMENT
from msrpc.rpc.pac import unpack_logon_information
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import Identity, Question

KERBEROS_OID: Final = bytes.fromhex("2a864886f712010202")  # 1.2.840.113554.1.2.2
MICROSOFT_KERBEROS_OID: Final = bytes.fromhex("2a864882f712010202")  # 1.2.840.48018.1.2.2, the same protocol
KERBEROS_OIDS: Final = (MICROSOFT_KERBEROS_OID, KERBEROS_OID)
_LOGON_INFORMATION: Final = b"urn:mspac:logon-info"
_INITIAL_CONTEXT_TOKEN: Final = b"\x60"  # RFC 2743 3.1
_AP_REQ_FOLLOWS: Final = b"\x01\x00"  # RFC 4121 4.1
_AP_REQ: Final = b"\x6e"  # RFC 4120 5.5.1


@dataclass(frozen=True, slots=True)
class KerberosCredentials:
    """A client with a ticket.

    service: the server's principal, as `host/mq1.example.com` or `host/mq1.example.com@EXAMPLE.COM`; empty for `host/`
        and the name that is connected to.
    cache: the ticket cache, such as `FILE:/tmp/krb5cc_1000`; empty for the one in the environment (KRB5CCNAME).
    keytab: the keys of a service that obtains its own tickets; `principal` is the name of that service.
    """

    service: str = ""
    cache: str = ""
    keytab: str = ""
    principal: str = ""


def _library() -> Any:
    try:
        import gssapi
        import gssapi.raw
    except (ImportError, OSError) as error:
        package = raised_class(KerberosUnavailable).requirement
        advice = f"install it with pip install '{package}', which requires gcc and Debian's libkrb5-dev"
        raise KerberosUnavailable(
            f"Kerberos needs the library gssapi, which can't be loaded ({error}): {advice}"
        ) from None
    return gssapi


def _refusal(error: Any) -> AuthenticationError:
    return AuthenticationError("Kerberos: " + " ".join(str(error.gen_message()).split()))


class _Kerberos:
    """Base of both roles: protection of messages once the exchange is over (RFC 4121 4.2, [MS-KILE] 3.4.5.4-6)."""

    always_signs_headers = False

    def __init__(self, gss: Any, level: int) -> None:
        self._gss = gss
        self._level = level
        self._context: Any = None
        self._sizes: dict[bool, int] = {}
        self.identity: Identity | None = None
        self.complete = False

    def _advance(self, token: bytes | None) -> bytes:
        if self.complete:
            raise AuthenticationError("Kerberos has no further leg")
        try:
            answer: bytes | None = self._context.step(token)
        except self._gss.exceptions.GSSError as error:
            raise _refusal(error) from None
        return answer or b""

    def _wanted(self) -> int:
        """Return the flags for a level ([MS-RPCE] 3.3.1.5.2.2), and for the detection of repeated messages (deviation
        D-161)."""
        flag = self._gss.RequirementFlag
        wanted = int(flag.dce_style | flag.mutual_authentication)
        if self._level >= AuthLevel.PKT:
            wanted |= int(flag.integrity | flag.replay_detection | flag.out_of_sequence_detection)
        if self._level >= AuthLevel.PKT_PRIVACY:
            wanted |= int(flag.confidentiality)
        return wanted

    def _established(self) -> Any:
        if not self.complete:
            raise LocalProtocolError("the authentication is not complete")
        return self._context

    @property
    def protection(self) -> _Kerberos:
        self._established()
        return self

    def reset_ciphers(self) -> None:
        """Do nothing: ciphers keep no state between messages, so a mechListMIC changes nothing (RFC 4121 4.2.4)."""

    def question(self, token: bytes) -> Question | None:
        """Return None: the acceptor has its keys, and the initiator has waited in `begin`."""
        return None

    def signature_size(self, level: int) -> int:
        """Return the size, measured once. Making a signature to measure it would consume a sequence number."""
        sealed = level >= AuthLevel.PKT_PRIVACY
        size = self._sizes.get(sealed)
        if size is None:
            raw, kind, context = self._gss.raw, self._gss.raw.IOVBufferType, self._established()
            data = (kind.data, bytes(SEC_TRAILER_ALIGNMENT))
            if sealed:
                iov = raw.IOV(kind.header, data, std_layout=False)
                raw.wrap_iov_length(context, iov, True)
                size = len(iov[0].value)
            else:
                iov = raw.IOV(data, kind.mic_token, std_layout=False)
                raw.get_mic_iov_length(context, iov)
                size = len(iov[1].value)
            self._sizes[sealed] = size
        return size

    def sign(self, message: bytes) -> bytes:
        signature: bytes = self._established().get_signature(message)
        return signature

    def verify(self, message: bytes, signature: bytes) -> None:
        try:
            self._established().verify_signature(message, signature)
        except self._gss.exceptions.GSSError as error:
            raise _refusal(error) from None

    def wrap(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[bytes, bytes]:
        raw, kind = self._gss.raw, self._gss.raw.IOVBufferType
        iov = raw.IOV(kind.header, *self._around(prefix, body, suffix), std_layout=False)
        raw.wrap_iov(self._established(), iov, True)
        return iov[2].value, iov[0].value

    def unwrap(self, prefix: bytes, body: bytes, suffix: bytes, signature: bytes) -> bytes:
        raw, kind = self._gss.raw, self._gss.raw.IOVBufferType
        iov = raw.IOV((kind.header, False, signature), *self._around(prefix, body, suffix), std_layout=False)
        try:
            done = raw.unwrap_iov(self._established(), iov)
        except self._gss.exceptions.GSSError as error:
            raise _refusal(error) from None
        if not done.encrypted:
            raise AuthenticationError("Kerberos: a fragment is not encrypted, although its level is PKT_PRIVACY")
        plain: bytes = iov[2].value
        return plain

    def _around(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[Any, Any, Any]:
        kind = self._gss.raw.IOVBufferType
        return (kind.sign_only, False, prefix), (kind.data, False, body), (kind.sign_only, False, suffix)


class KerberosInitiator(_Kerberos):
    """The client. Only `begin` may contact a domain controller, which may take seconds."""

    def __init__(self, credentials: KerberosCredentials, level: int) -> None:
        """Raises KerberosUnavailable."""
        super().__init__(_library(), level)
        if not credentials.service:
            raise LocalProtocolError("Kerberos requires the name of the service, for example host/mq1.example.com")
        self._credentials = credentials
        self._first = b""

    def begin(self) -> None:
        """Get the ticket, so that `step` does not wait. Raises AuthenticationError."""
        if self._context is not None:
            return
        gss, given = self._gss, self._credentials
        kind = gss.NameType.kerberos_principal  # used unchanged: no resolver decides who the server is
        store = {"ccache": given.cache} if given.cache else {}
        if given.keytab:
            store = {"client_keytab": given.keytab, "ccache": given.cache or f"MEMORY:msrpc-{os.getpid()}"}
        try:
            own = gss.Name(given.principal, kind) if given.principal else None
            user = gss.Credentials(usage="initiate", name=own, mechs=[gss.MechType.kerberos], store=store or None)
            self._context = _context(gss)(
                name=gss.Name(given.service, kind), creds=user, usage="initiate", mech=gss.MechType.kerberos,
                flags=self._wanted(),
            )  # fmt: skip
            self._first = self._context.step(None) or b""
        except gss.exceptions.GSSError as error:
            raise _refusal(error) from None

    def step(self, token: bytes) -> bytes:
        if self._context is None or self._first:
            self.begin()
            first, self._first = self._first, b""
            return first
        answer = self._advance(token)
        self.complete = self._context.complete
        if self.complete and int(self._context.actual_flags) & self._wanted() != self._wanted():
            raise AuthenticationError("Kerberos: the server does not support the protection that the level requires")
        return answer


def check_keytab(keytab: Path) -> None:
    """Check a keytab file. Raises KerberosUnavailable if it can't be read, or if other users may read it."""
    try:
        with keytab.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        advice = f"it has to be readable for uid {os.geteuid()}"
        raise KerberosUnavailable(f"the keytab {keytab} can't be read ({error.strerror}): {advice}") from None
    if mode & 0o007:
        raise KerberosUnavailable(
            f"the keytab {keytab} can be read by other users; set its mode to 0600 or 0640 (chmod)"
        )


class KerberosKeys:
    """The keys of a service. Creates acceptors. Credentials are acquired once; the keytab is read for each login."""

    def __init__(self, keytab: Path, principal: str, replay_cache: Path) -> None:
        """`principal` is the only one that is accepted, or empty for all in the keytab. `replay_cache` is a file that
        remembers authenticators. Raises KerberosUnavailable."""
        self._gss = gss = _library()
        check_keytab(keytab)
        store = {"keytab": f"FILE:{keytab}", "rcache": f"file2:{replay_cache}"}
        try:
            name = gss.Name(principal, gss.NameType.kerberos_principal) if principal else None
            self._credentials = gss.Credentials(usage="accept", name=name, mechs=[gss.MechType.kerberos], store=store)
        except gss.exceptions.GSSError as error:
            who = principal or "any principal"
            advice = f"`klist -k {keytab}` shows what is in it"
            raise KerberosUnavailable(f"{keytab} has no key of {who}: {_refusal(error)}; {advice}") from None

    def acceptor(self, level: int) -> KerberosAcceptor:
        return KerberosAcceptor(self._gss, self._credentials, level)


class KerberosAcceptor(_Kerberos):
    """The server."""

    def __init__(self, gss: Any, credentials: Any, level: int) -> None:
        super().__init__(gss, level)
        self._context = _context(gss)(creds=credentials, usage="accept")
        self._begun = False

    def step(self, token: bytes) -> bytes:
        if not self._begun:
            self._begun, token = True, ap_request(token)
        answer = self._advance(token)
        if self._context.complete:
            self._check_flags()
            self.identity = self._authorize()
            self.complete = True
        return answer

    def _check_flags(self) -> None:
        flags, wanted = int(self._context.actual_flags), self._wanted()
        if flags & wanted != wanted:
            names = [flag.name for flag in self._gss.RequirementFlag if wanted & ~flags & int(flag)]
            raise AuthenticationError(f"Kerberos: the client did not ask for {', '.join(names)}")
        if flags & int(self._gss.RequirementFlag.delegate_to_peer):
            raise AuthenticationError(
                "Kerberos: the client delegates its credentials, which this server does not accept"
            )

    def _authorize(self) -> Identity:
        """Return the identity in the PAC. The context is established also if the PAC was altered; then it can't be
        read, as that of a ticket without one."""
        name = self._context.initiator_name
        try:
            found = self._gss.raw.get_name_attribute(name, _LOGON_INFORMATION)
        except self._gss.exceptions.GSSError:
            detail = "its PAC is missing or its signature is wrong"
            raise AuthenticationError(f"Kerberos: the ticket of {name} has no groups: {detail}") from None
        if not found.authenticated or len(found.values) != 1:
            raise AuthenticationError(f"Kerberos: the PAC in the ticket of {name} was not verified")
        logon = unpack_logon_information(found.values[0])
        return Identity(logon.user, logon.domain, logon.sid, logon.groups, "kerberos")


def ap_request(token: bytes) -> bytes:
    """Return the AP-REQ without the header of RFC 2743, which DCE style does not have, but some clients send (deviation
    D-160). Raises AuthenticationError for any other token, which the library would take for another mechanism."""
    if token[:1] == _INITIAL_CONTEXT_TOKEN:
        inner = der.unwrap(token, _INITIAL_CONTEXT_TOKEN[0])
        headers = (der.wrap(der.OID, oid) + _AP_REQ_FOLLOWS for oid in KERBEROS_OIDS)
        token = next((inner[len(header) :] for header in headers if inner.startswith(header)), b"")
    if token[:1] != _AP_REQ:
        raise AuthenticationError("Kerberos: the first token is not an AP-REQ")
    return token


def _context(gss: Any) -> Any:
    """Return a context class of the library that raises errors in the failing step and not at the next access."""
    # The metaclass sets the attribute to True in each new class.
    made = type("Context", (gss.SecurityContext,), {})
    made.__DEFER_STEP_ERRORS__ = False  # type: ignore[attr-defined]
    return made
