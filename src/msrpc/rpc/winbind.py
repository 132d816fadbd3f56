"""Domain accounts by NTLM: Samba's winbind queries a domain controller over the machine's secure channel
([MS-APDS] 3.1.5). Its library `libwbclient` is loaded on first use.

Types and constants come from the library's header, wbclient.h, interface 0.12 and later.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from dataclasses import replace
from typing import Any, Final

from msrpc.errors import AuthenticationError, LogonUnavailable, WinbindUnavailable
from msrpc.rpc.ntlm import LoggedOn, NetworkLogon, ServerNames
from msrpc.rpc.pac import SE_GROUP_ENABLED, account_groups
from msrpc.rpc.security import Identity

logger = logging.getLogger(__name__)

LIBRARY: Final = "libwbclient.so.0"
START_SECONDS: Final = 2.0  # maximum wait in seconds, at the start of the daemon, for the names of the domain
_LEVEL_RESPONSE: Final = 3
# MSV1_0_ALLOW_SERVER_TRUST_ACCOUNT and MSV1_0_ALLOW_WORKSTATION_TRUST_ACCOUNT ([MS-NRPC] 2.2.1.4.15): computers log in.
_PARAMETER_CONTROL: Final = 0x820
_GUEST: Final = 0x1  # of user flags ([MS-NRPC] 2.2.1.4.11)
_AUTH_ERROR, _NOT_AVAILABLE, _DOMAIN_NOT_FOUND = 10, 6, 7  # enum wbcErrType
_MAX_SUBAUTHORITIES: Final = 15

# [MS-ERREF] 2.3.1. A status in neither table is a refusal.
_UNKNOWN_USER: Final = frozenset([0xC0000064, 0xC00000DF])  # STATUS_NO_SUCH_USER, STATUS_NO_SUCH_DOMAIN
_UNAVAILABLE: Final = {
    0xC0000022: "winbind does not let this process ask: it has to be in the group winbindd_priv",
    0xC000005E: "winbind finds no domain controller (STATUS_NO_LOGON_SERVERS)",
    0xC00000B5: "the domain controller does not answer winbind (STATUS_IO_TIMEOUT)",
    0xC000018B: "the domain has no account of this machine (STATUS_NO_TRUST_SAM_ACCOUNT): join it again",
    0xC000018D: "this machine's account is not good (STATUS_TRUSTED_RELATIONSHIP_FAILURE): `wbinfo -t`",
    0xC0000233: "winbind finds no domain controller (STATUS_DOMAIN_CONTROLLER_NOT_FOUND)",
}


class _Sid(ctypes.Structure):
    _fields_ = (
        ("revision", ctypes.c_uint8),
        ("count", ctypes.c_uint8),
        ("authority", ctypes.c_uint8 * 6),
        ("subauthorities", ctypes.c_uint32 * _MAX_SUBAUTHORITIES),
    )

    @property
    def text(self) -> str:
        authority = int.from_bytes(bytes(self.authority), "big")
        return "-".join(map(str, ("S-1", authority, *self.subauthorities[: min(self.count, _MAX_SUBAUTHORITIES)])))


class _SidWithAttributes(ctypes.Structure):
    _fields_ = (("sid", _Sid), ("attributes", ctypes.c_uint32))


class _Response(ctypes.Structure):
    _fields_ = (
        ("challenge", ctypes.c_uint8 * 8),
        ("nt_length", ctypes.c_uint32),
        ("nt_data", ctypes.c_char_p),
        ("lm_length", ctypes.c_uint32),
        ("lm_data", ctypes.c_char_p),
    )


class _Parameters(ctypes.Structure):
    """struct wbcAuthUserParams, in whose union `response` is the largest."""

    _fields_ = (
        ("account_name", ctypes.c_char_p),
        ("domain_name", ctypes.c_char_p),
        ("workstation_name", ctypes.c_char_p),
        ("flags", ctypes.c_uint32),
        ("parameter_control", ctypes.c_uint32),
        ("level", ctypes.c_int),
        ("response", _Response),
    )


class _User(ctypes.Structure):
    """struct wbcAuthUserInfo."""

    _fields_ = (
        ("user_flags", ctypes.c_uint32),
        *((name, ctypes.c_char_p) for name in ("account_name", "principal", "full_name", "domain_name", "dns_domain")),
        ("account_flags", ctypes.c_uint32),
        ("session_key", ctypes.c_uint8 * 16),
        ("lm_session_key", ctypes.c_uint8 * 8),
        ("logon_count", ctypes.c_uint16),
        ("bad_password_count", ctypes.c_uint16),
        ("times", ctypes.c_uint64 * 6),
        *((name, ctypes.c_char_p) for name in ("server", "script", "profile", "home", "drive")),
        ("sid_count", ctypes.c_uint32),
        ("sids", ctypes.POINTER(_SidWithAttributes)),
    )


class _Error(ctypes.Structure):
    """struct wbcAuthErrorInfo."""

    _fields_ = (
        ("status", ctypes.c_uint32),
        ("text", ctypes.c_char_p),
        ("pam", ctypes.c_int32),
        ("display", ctypes.c_char_p),
        ("authoritative", ctypes.c_uint8),
    )


class _Details(ctypes.Structure):
    """struct wbcInterfaceDetails."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("winbind_version", ctypes.c_char_p),
        ("separator", ctypes.c_char),
        ("netbios_name", ctypes.c_char_p),
        ("netbios_domain", ctypes.c_char_p),
        ("dns_domain", ctypes.c_char_p),
    )


def _library() -> Any:
    try:
        library = ctypes.CDLL(LIBRARY)
        library.wbcCtxCreate.restype = ctypes.c_void_p
        library.wbcCtxCreate.argtypes = ()
        library.wbcCtxFree.restype = None
        library.wbcCtxFree.argtypes = (ctypes.c_void_p,)
        library.wbcFreeMemory.restype = None
        library.wbcFreeMemory.argtypes = (ctypes.c_void_p,)
        library.wbcErrorString.restype = ctypes.c_char_p
        library.wbcErrorString.argtypes = (ctypes.c_int,)
        library.wbcCtxInterfaceDetails.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.POINTER(_Details)))
        library.wbcCtxAuthenticateUserEx.argtypes = (
            ctypes.c_void_p,
            ctypes.POINTER(_Parameters),
            ctypes.POINTER(ctypes.POINTER(_User)),
            ctypes.POINTER(ctypes.POINTER(_Error)),
        )
    except (OSError, AttributeError) as error:
        raise WinbindUnavailable(
            f"winbind needs the library {LIBRARY} of Samba 4.7 or later, which can't be loaded ({error}): install "
            "Debian's winbind and libwbclient0"
        ) from None
    return library


class Winbind:
    """See the module docstring and `ntlm.DomainUsers`. Thread-safe; each call uses a separate connection to winbind."""

    def __init__(self, *, first: bool) -> None:
        """Raises WinbindUnavailable without the library. Winbind itself may start later."""
        self.first: Final = first
        self._library: Final = _library()
        self._domain = self._dns_domain = self._computer_name = ""
        learning = threading.Thread(target=self._begin, name="winbind", daemon=True)
        learning.start()
        learning.join(START_SECONDS)

    def membership(self) -> tuple[str, str]:
        """Return the NetBIOS names of the computer and of the domain. Blocks. Raises LogonUnavailable."""
        self._learn()
        return self._computer_name, self._domain

    def _begin(self) -> None:
        try:
            self._learn()
        except LogonUnavailable as error:
            logger.warning("domain accounts cannot log in with NTLM yet; local users can: %s", error)

    def is_named(self, domain: str) -> bool:
        return bool(domain) and domain.casefold() in (self._domain.casefold(), self._dns_domain.casefold())

    def names(self, names: ServerNames) -> ServerNames:
        """Return the names of the domain. Controllers compare the server's names in a response with its account, so
        they reject responses without them."""
        return replace(names, domain=self._domain, dns_domain=self._dns_domain) if self._domain else names

    def log_on(self, logon: NetworkLogon) -> LoggedOn | None:
        if not self._domain:
            self._learn()
            raise LogonUnavailable("winbind was not running when this login began; log in again")
        library, context = self._library, self._library.wbcCtxCreate()
        user, failure = ctypes.POINTER(_User)(), ctypes.POINTER(_Error)()
        try:
            done = library.wbcCtxAuthenticateUserEx(
                context, _parameters(logon, self._domain), ctypes.byref(user), ctypes.byref(failure)
            )
            if not done:
                return _logged_on(user.contents, logon)
            self._check_refusal(done, failure, logon)
            return None
        finally:
            for memory in (user, failure):
                library.wbcFreeMemory(ctypes.cast(memory, ctypes.c_void_p))
            library.wbcCtxFree(context)

    def _check_refusal(self, done: int, failure: Any, logon: NetworkLogon) -> None:
        """Raises for every failure except a user unknown to the domain."""
        if done == _DOMAIN_NOT_FOUND:
            return
        if done != _AUTH_ERROR or not failure:
            raise self._unavailable(done)
        status = int(failure.contents.status)
        if status in _UNKNOWN_USER:
            return
        if status in _UNAVAILABLE:
            raise LogonUnavailable(_UNAVAILABLE[status])
        name = (failure.contents.text or b"").decode(errors="replace") or f"{status:#010x}"
        raise AuthenticationError(f"the domain refuses {logon.domain!r} {logon.user!r}: {name}")

    def _learn(self) -> None:
        """Query the names of the domain. Raises LogonUnavailable."""
        library, context = self._library, self._library.wbcCtxCreate()
        details = ctypes.POINTER(_Details)()
        try:
            done = library.wbcCtxInterfaceDetails(context, ctypes.byref(details))
            if done:
                raise self._unavailable(done)
            domain, dns_domain = details.contents.netbios_domain, details.contents.dns_domain
            self._dns_domain = (dns_domain or b"").decode(errors="replace")
            self._computer_name = (details.contents.netbios_name or b"").decode(errors="replace")
            self._domain = (domain or b"").decode(errors="replace")
        finally:
            library.wbcFreeMemory(ctypes.cast(details, ctypes.c_void_p))
            library.wbcCtxFree(context)
        if not self._domain:
            raise LogonUnavailable("winbind has no domain: join this machine (`net ads join`)")

    def _unavailable(self, done: int) -> LogonUnavailable:
        error = (self._library.wbcErrorString(done) or b"").decode(errors="replace")
        advice = (
            "start it (`systemctl start winbind`), `wbinfo -p` asks it" if done == _NOT_AVAILABLE else "see its log"
        )
        return LogonUnavailable(f"winbind does not answer ({error}): {advice}")


def _parameters(logon: NetworkLogon, domain: str) -> _Parameters:
    """Return the parameters of a logon. A user without a domain belongs to `domain`, unless the name is a principal
    name.
        Raises AuthenticationError."""
    if "\0" in logon.user + logon.domain + logon.workstation:
        raise AuthenticationError("a name in the login contains NUL")
    of = logon.domain or ("" if "@" in logon.user else domain)
    answers = (len(logon.nt_response), logon.nt_response, len(logon.lm_response), logon.lm_response)
    return _Parameters(
        logon.user.encode(), of.encode(), logon.workstation.encode(), 0, _PARAMETER_CONTROL, _LEVEL_RESPONSE,
        _Response((ctypes.c_uint8 * 8)(*logon.challenge), *answers),
    )  # fmt: skip


def _logged_on(user: Any, logon: NetworkLogon) -> LoggedOn:
    """Return the result. Raises AuthenticationError for a user accepted without a password check."""
    key = bytes(user.session_key)
    if user.user_flags & _GUEST or not any(key) or not user.sid_count:
        raise AuthenticationError(f"the domain accepted {logon.domain!r} {logon.user!r} only as a guest")
    sids = [(user.sids[at].sid.text, int(user.sids[at].attributes)) for at in range(user.sid_count)]
    sid = sids[0][0]
    primary = [(group, SE_GROUP_ENABLED) for group, _ in sids[1:2]]  # the library has no attributes for it
    name, domain = (part.decode(errors="replace") for part in (user.account_name or b"", user.domain_name or b""))
    groups = account_groups(sid, [*primary, *sids[2:]])
    return LoggedOn(Identity(name or logon.user, domain or logon.domain, sid, groups, "winbind"), key)
