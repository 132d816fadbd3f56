"""Login through OpenID Connect, with a small provider in the test process."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from console.browser import Answer, Browser, Client, port_of
from console.conftest import OPTIONS, users
from daemon import Daemon
from msrpc.rpc.throttle import FailureLimits
from one_answer import answering
from openmsmq.gateways.openid import (
    STATE_SECONDS,
    LoginNotProven,
    OpenIdLogin,
    OpenIdSettings,
    ProviderUnavailable,
    is_safe_url,
    user_in,
    verified,
)
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.web import _check_openid
from requirements import library

library("joserfc", "pip install 'openmsmq[oidc]'")

from joserfc import jwt  # noqa: E402
from joserfc.jwk import ECKey, OctKey, RSAKey  # noqa: E402

CLIENT, SECRET = "console", "s3cret of the client/+"
CALLBACK = "/login/openid/callback"
#: Generated once, because generating an RSA key is slow.
RSA, EC, OTHER = RSAKey.generate_key(2048), ECKey.generate_key("P-256"), RSAKey.generate_key(2048)


def jwk(key: RSAKey | ECKey, identifier: str) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": identifier, "use": "sig"}


KEYS = {"keys": [jwk(RSA, "rsa"), jwk(EC, "ec")]}


@dataclass
class Provider:
    """An OpenID provider where `user` is logged in. `changes` replaces claims; None omits a claim."""

    user: str = "bob"
    changes: dict[str, Any] = field(default_factory=dict)
    key: RSAKey | ECKey = field(default_factory=lambda: RSA)
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256", "kid": "rsa"})
    issuer: str = ""
    is_down: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def elsewhere(self) -> str:
        """The provider's URL with another host name, so that browsers treat it as another site than the console."""
        return self.issuer.replace("127.0.0.1", "localhost")

    def authorize(self, asked: dict[str, str]) -> str:
        """Issue a code and return the URL to which the browser is redirected."""
        assert asked["response_type"] == "code" and "openid" in asked["scope"].split()
        assert asked["client_id"] == CLIENT and asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        expected = base64.b64encode(f"{CLIENT}:s3cret%20of%20the%20client%2F%2B".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode()
        proven = asked is not None and asked["code_challenge"] == challenge.rstrip("=")
        if asked is None or not proven or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        claims = claims_of(self.issuer, asked["nonce"], preferred_username=self.user) | self.changes
        return 200, {"id_token": signed(claims, self.key, self.header), "token_type": "Bearer", "access_token": "x"}


def claims_of(issuer: str, nonce: str, **more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"iss": issuer, "sub": "1", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce, **more}


def signed(claims: dict[str, Any], key: Any, header: dict[str, Any]) -> str:
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(header, given, key, algorithms=[header["alg"]])


def handler_of(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _say(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            paths = {"/.well-known/openid-configuration": {
                "issuer": provider.issuer, "authorization_endpoint": f"{provider.elsewhere}/authorize",
                "token_endpoint": f"{provider.issuer}/token", "jwks_uri": f"{provider.issuer}/keys",
            }, "/keys": KEYS}  # fmt: skip
            path, _, query = self.path.partition("?")
            if path == "/authorize":
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                where = html.escape(provider.authorize(dict(parse_qsl(query))))
                self.wfile.write(f'<a href="{where}">Allow</a>'.encode())
                return
            self._say(503, {}) if provider.is_down else self._say(200 if path in paths else 404, paths.get(path))

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            down = (503, {"error": "temporarily_unavailable"})
            self._say(*(down if provider.is_down else provider.token(form, self.headers["Authorization"])))

        def log_message(self, *_: Any) -> None:
            """Suppress the log."""

    return Handler


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    found = Provider()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(found)) as server:
        found.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


@pytest.fixture(scope="module")
def daemon(served: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("openid") / "data"
    users(directory)
    secret = directory.parent / "secret"
    secret.write_text(f"{SECRET}\n")
    options = ("--oidc-issuer", served.issuer, "--oidc-client-id", CLIENT, "--oidc-client-secret-file", str(secret))
    with Daemon(directory, *OPTIONS, *options) as running:
        yield running


@pytest.fixture
def provider(served: Provider) -> Provider:
    """The provider, reset to its initial state."""
    fresh = Provider()
    for name in ("user", "changes", "key", "header", "is_down", "codes"):
        setattr(served, name, getattr(fresh, name))
    return served


class Visitor(Browser):
    """Logs in through the provider. Keeps one cookie: the session's replaces that of the login state."""

    def begin(self, following: str = "/", **headers: str) -> dict[str, str]:
        """Start a login. Returns the parameters of the redirect to the provider."""
        answer = self.ask("GET", f"/login/openid?{urlencode({'next': following})}", **headers)
        assert answer.status == 303, answer.text
        assert "SameSite=lax" in answer.headers["set-cookie"] and "HttpOnly" in answer.headers["set-cookie"]
        return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}

    def come_back(self, url: str) -> Answer:
        path = urlsplit(url)
        answer = self.ask("GET", f"{path.path}?{path.query}", Host=path.netloc or "localhost")
        sessions = [line for line in answer.headers.get_all("set-cookie") or [] if "SameSite=strict" in line]
        self.cookie = sessions[0].partition(";")[0] if sessions else ""
        return answer


def logged_in(daemon: Daemon, provider: Provider, following: str = "/") -> tuple[Visitor, Answer]:
    visitor = Visitor(daemon)
    return visitor, visitor.come_back(provider.authorize(visitor.begin(following)))


def said(answer: Answer) -> str:
    found = re.search(r'<p role="alert" class="wrong">(.*?)</p>', answer.text)
    assert found is not None, answer.text
    return html.unescape(found.group(1))


def test_a_user_of_the_provider_is_logged_in_as_the_user_of_that_name(daemon: Daemon, provider: Provider) -> None:
    assert "Log in with 127.0.0.1" in Visitor(daemon).ask("GET", "/login").text
    visitor, answer = logged_in(daemon, provider, "/queues?filter=a&sort=name")
    assert answer.status == 200 and answer.headers["refresh"] == "0; url=/queues?filter=a&sort=name"
    [deleted] = [line for line in answer.headers.get_all("set-cookie") or [] if "SameSite=lax" in line]
    assert "Max-Age=0" in deleted, "the state of the login"
    session = visitor.ask("GET", "/api/v1/session")
    assert session.json["user"] == "bob" and not session.json["administrator"]
    records = Client(daemon).get("/audit", action="login", by="bob")
    assert records["records"], records


def test_a_form_that_is_sent_after_the_end_of_a_login_can_be_kept_with_the_provider(
    daemon: Daemon, provider: Provider
) -> None:
    page = Visitor(daemon).ask("POST", "/queues", {"csrf": "x", "name": "typed"})
    assert page.status == 401 and "in another tab" in page.text
    assert 'href="/login/openid" target="_blank"' in page.text
    visitor, _ = logged_in(daemon, provider)
    page = visitor.ask("POST", "/queues", {"csrf": "x", "name": "typed"})
    assert page.status == 403 and 'name="name" size="40" value="typed"' in page.text


def test_behind_a_tls_proxy_the_provider_redirects_to_it(daemon: Daemon, provider: Provider) -> None:
    visitor = Visitor(daemon)
    begun = visitor.begin("/queues", Host="localhost", Referer="https://localhost/login")
    assert begun["redirect_uri"] == f"https://localhost{CALLBACK}" and "Secure" in visitor.last.headers["set-cookie"]
    answer = visitor.come_back(provider.authorize(begun))
    assert answer.status == 200 and answer.headers["refresh"] == "0; url=/queues"
    assert all("Secure" in line for line in answer.headers.get_all("set-cookie") or [""])


def test_a_key_of_elliptic_curves_signs_too(daemon: Daemon, provider: Provider) -> None:
    provider.key, provider.header = EC, {"alg": "ES256"}
    visitor, _ = logged_in(daemon, provider)
    assert visitor.ask("GET", "/api/v1/session").json["user"] == "bob"


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"nonce": "another"}, "nonce"), ({"nonce": None}, "nonce"), ({"aud": "other"}, "aud"),
     ({"aud": [CLIENT, "other"]}, "azp"), ({"exp": int(time.time()) - 3600}, "expired"), ({"exp": None}, "exp"),
     ({"iss": "http://127.0.0.1:1"}, "iss"), ({"preferred_username": None}, "no claim preferred_username")],
)  # fmt: skip
def test_an_id_token_with_a_wrong_claim_logs_nobody_in(
    daemon: Daemon, provider: Provider, changes: dict[str, Any], why: str
) -> None:
    provider.changes = changes
    visitor, answer = logged_in(daemon, provider)
    assert answer.status == 401 and why in said(answer).lower() and not visitor.cookie


@pytest.mark.parametrize(
    ("key", "header"),
    [(OTHER, {"alg": "RS256", "kid": "rsa"}), (OTHER, {"alg": "RS256"}), (RSA, {"alg": "RS256", "kid": "unknown"}),
     (RSA, {"alg": "PS256", "kid": "rsa"}),
     (OctKey.generate_key(256), {"alg": "HS256", "kid": "rsa"})],
)  # fmt: skip
def test_an_id_token_that_the_provider_has_not_signed_logs_nobody_in(
    daemon: Daemon, provider: Provider, key: Any, header: dict[str, Any]
) -> None:
    provider.key, provider.header = key, header
    visitor, answer = logged_in(daemon, provider)
    assert answer.status == 401 and "sign" in said(answer) and not visitor.cookie


def test_an_unknown_user_is_refused_with_the_command_that_adds_them_and_recorded(
    daemon: Daemon, provider: Provider
) -> None:
    def denied() -> list[Any]:
        found: list[Any] = Client(daemon).get("/audit", action="login", denied="true", limit=500)["records"]
        return found

    provider.user = "mallory o'neil"
    before = len(denied())
    visitor, answer = logged_in(daemon, provider)
    assert answer.status == 401 and not visitor.cookie
    assert "there is no user mallory o'neil (preferred_username" in said(answer)
    assert "openmsmq user add 'mallory o'\"'\"'neil'" in said(answer)
    assert len(denied()) == before + 1


def test_a_code_works_once_and_only_in_the_browser_that_began(daemon: Daemon, provider: Provider) -> None:
    visitor, other = Visitor(daemon), Visitor(daemon)
    back = provider.authorize(visitor.begin())
    other.begin()
    assert "not begun in this browser" in said(other.come_back(back)) and not other.cookie
    kept = visitor.cookie
    assert visitor.come_back(back).status == 200
    visitor.cookie = kept
    again = visitor.come_back(back)
    assert again.status == 401 and "does not accept the code" in said(again)


def test_a_state_that_the_daemon_did_not_make_is_refused(daemon: Daemon, provider: Provider) -> None:
    visitor = Visitor(daemon)
    begun = visitor.begin()
    state = begun["state"][:-1] + ("A" if begun["state"][-1] != "A" else "B")
    visitor.cookie = visitor.cookie.replace(begun["state"], state)
    answer = visitor.come_back(provider.authorize({**begun, "state": state}))
    assert answer.status == 401 and "not one of this daemon" in said(answer)


def test_a_refusal_of_the_provider_is_shown(daemon: Daemon, provider: Provider) -> None:
    visitor = Visitor(daemon)
    query = urlencode({"state": visitor.begin()["state"], "error": "access_denied<"})
    answer = visitor.come_back(f"{CALLBACK}?{query}")
    assert answer.status == 401 and "access_denied<" in said(answer)


@pytest.mark.parametrize("following", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_a_login_leads_to_no_other_site(daemon: Daemon, provider: Provider, following: str) -> None:
    _, answer = logged_in(daemon, provider, following)
    assert answer.headers["refresh"] == "0; url=/"


def test_a_provider_that_is_down_is_no_failed_login_and_passwords_still_work(
    daemon: Daemon, provider: Provider
) -> None:
    visitor = Visitor(daemon)
    back = provider.authorize(visitor.begin())
    provider.is_down = True
    answer = visitor.come_back(back)
    assert answer.status == 503 and "temporarily_unavailable" in said(answer)
    assert Browser(daemon).login("bob").status == 201


def test_failed_logins_are_throttled(served: Provider, provider: Provider, tmp_path: Path) -> None:
    users(tmp_path / "data")
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    options = ("--oidc-issuer", served.issuer, "--oidc-client-id", CLIENT, "--oidc-client-secret-file", str(secret))
    with Daemon(tmp_path / "data", *OPTIONS, *options) as own:
        visitor = Visitor(own)
        state = visitor.begin()["state"]
        kept = f"{visitor.cookie}"

        def guess() -> int:
            visitor.cookie = kept
            return visitor.come_back(f"{CALLBACK}?{urlencode({'state': state, 'code': 'guessed'})}").status

        assert guess() == 401
        # Repeated, because a slow machine may take longer than the period of the limit.
        assert any(use_up_logins(own) == 429 and guess() == 429 for _ in range(5))


def use_up_logins(daemon: Daemon) -> int:
    """Log in with an unknown token until logins of this host are refused. Returns the last status."""
    with closing(HTTPConnection("127.0.0.1", port_of(daemon), timeout=30)) as connection:
        for _ in range(2 * FailureLimits().login):
            connection.request("GET", "/api/v1/session", headers={"Authorization": "Bearer omq_unknown"})
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:
                break
        return answer.status


def test_without_a_provider_there_is_neither_a_button_nor_a_way(own: Any) -> None:
    assert "Log in with" not in Browser(own.daemon).ask("GET", "/login").text
    assert Browser(own.daemon).ask("GET", "/login/openid").status == 404


@pytest.mark.slow
def test_a_browser_that_comes_back_from_another_site_is_logged_in(
    daemon: Daemon, provider: Provider, chromium: Any
) -> None:
    page = chromium.new_page()
    page.goto(f"http://127.0.0.1:{port_of(daemon)}/tokens")
    page.click("text=Log in with 127.0.0.1")
    page.click("text=Allow")  # from here on, the navigation is cross-site
    page.wait_for_url("**/tokens", timeout=60_000)
    assert page.locator(".who").inner_text(timeout=60_000) == "bob"
    page.context.close()


# -- without a daemon --------------------------------------------------------------------------------------------------


def checked(changes: dict[str, Any]) -> Any:
    settings = OpenIdSettings("https://id.example", CLIENT)
    token = signed(claims_of("https://id.example", "n") | changes, RSA, {"alg": "RS256"})
    return verified(token, KEYS, settings, "n", time.time())


def test_a_token_for_several_clients_is_taken_from_the_one_to_which_it_was_given() -> None:
    assert checked({"aud": [CLIENT, "other"], "azp": CLIENT})["sub"] == "1"
    with pytest.raises(LoginNotProven, match="azp"):
        checked({"azp": "other"})


def test_an_address_counts_if_the_provider_has_verified_it() -> None:
    assert user_in({"email": "a@example.org", "email_verified": True}, "email") == "a@example.org"
    for claims in ({"email": "a@example.org"}, {"email": "a@example.org", "email_verified": "true"}, {"email": ["a"]}):
        with pytest.raises(LoginNotProven):
            user_in(claims, "email")


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine in another thread: Playwright runs an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def test_a_provider_that_does_not_answer_or_has_another_name_is_not_available(provider: Provider) -> None:
    async def begun(issuer: str) -> None:
        await OpenIdLogin(OpenIdSettings(issuer, CLIENT)).begin("http://localhost/")

    with pytest.raises(ProviderUnavailable, match="refused"):
        run(begun("http://127.0.0.1:1"))
    with pytest.raises(ProviderUnavailable, match="correct oidc_issuer"):
        run(begun(f"{provider.issuer}/"))
    provider.is_down = True
    with pytest.raises(ProviderUnavailable, match="503"):
        run(begun(provider.issuer))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"nonsense\r\n\r\n", "nonsense"), (b"", "closed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{", "IncompleteRead"),
        (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{", "IncompleteRead"),
        (b"HTTP/1.1 500 No\r\n\r\n" + 200_000 * b"[", "answers 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + 200_000 * b"[", "recursion"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "did not return a JSON object"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + (1 << 21) * b" ", "more than 1048576 bytes"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_an_unavailable_provider(answer: bytes, said: str) -> None:
    with answering(answer) as port, pytest.raises(ProviderUnavailable, match=said):
        run(OpenIdLogin(OpenIdSettings(f"http://127.0.0.1:{port}", CLIENT)).begin("http://localhost/"))


def test_a_state_ends_after_ten_minutes(provider: Provider) -> None:
    now = [1_800_000_000.0]

    async def finished() -> None:
        login = OpenIdLogin(OpenIdSettings(provider.issuer, CLIENT), lambda: now[0])
        _, state = await login.begin("http://localhost/")
        now[0] += STATE_SECONDS
        await login.finish(state, "code", "http://localhost/")

    with pytest.raises(LoginNotProven, match="more than 10 minutes"):
        run(finished())


def test_a_key_that_cannot_be_used_does_not_hide_the_one_that_signed() -> None:
    unusable = [{"kty": "RSA"}, {"kty": "EC", "crv": "P-0"}, jwk(ECKey.generate_key("P-384"), "x") | {"kid": None}, "x"]
    token = signed(claims_of("https://id.example", "n"), EC, {"alg": "ES256"})
    keys = {"keys": [*unusable, *KEYS["keys"]]}
    assert verified(token, keys, OpenIdSettings("https://id.example", CLIENT), "n", time.time())["sub"] == "1"


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "e30.e30.", "\ud800"])
def test_text_that_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(LoginNotProven):
        verified(token, KEYS, OpenIdSettings("https://id.example", CLIENT), "n", time.time())


@pytest.mark.parametrize("url", ["http://id.example", "ftp://localhost", "https://", "x", None, "https://[::1"])
def test_a_provider_is_asked_by_https_or_on_loopback_only(url: Any) -> None:
    assert not is_safe_url(url)
    assert is_safe_url("https://id.example/realm") and is_safe_url("http://localhost:8080")


@pytest.mark.parametrize(
    ("settings", "names"),
    [({"oidc_issuer": "http://id.example", "oidc_client_id": "x", "web": True}, "oidc_issuer"),
     ({"oidc_issuer": "https://id.example", "oidc_client_id": "x"}, "web is not set"),
     ({"oidc_issuer": "https://id.example", "web": True}, "oidc_client_id"),
     ({"oidc_client_secret_file": Path("x")}, "oidc_client_secret_file")],
)  # fmt: skip
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], names: str) -> None:
    made: Callable[..., Configuration] = Configuration
    with pytest.raises(ConfigurationError, match=names):
        made(data_dir=Path("x"), **settings)


def test_a_secret_that_cannot_be_read_is_an_error_of_its_setting(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for file, said in ((tmp_path / "missing", "No such file or directory"), (tmp_path / "empty", "is empty")):
        with pytest.raises(ConfigurationError, match=f"oidc_client_secret_file: {file}.*{said}"):
            _check_openid(OpenIdSettings("https://id.example", "x", file, "sub"))
