"""Security contexts of a server connection: which one a request belongs to, and who calls on it."""

from __future__ import annotations

from typing import Literal

from msrpc.rpc.call import UNAUTHENTICATED, RpcCaller
from msrpc.rpc.channel import Channel
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED
from msrpc.rpc.pdu import AuthLevel, Header
from msrpc.rpc.security import ANONYMOUS


class ServerChannels:
    """The security contexts of one connection.

    Attributes:
        by_id: auth context id -> channel.
        default_caller: the caller of requests without a verifier; None if such requests are refused. See `find`.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Channel] = {}
        self.default_caller: RpcCaller | None = UNAUTHENTICATED
        self._has_unprotected = False
        self._callers: dict[Channel, RpcCaller] = {}

    def add(self, channel: Channel) -> None:
        """Add a channel, or replace the one with its id."""
        previous = self.by_id.get(channel.context_id)
        if previous is not None:
            self._callers.pop(previous, None)
        self.by_id[channel.context_id] = channel
        self.update()

    def update(self) -> None:
        """Determine the default caller again: a channel has changed."""
        channel = self._implied()
        is_served = self._accepts_unauthenticated if channel is None else channel.usable
        self.default_caller = self.caller(channel) if is_served else None

    def allow_unprotected(self) -> None:
        """Accept requests without a verifier: presentation contexts were bound without authentication."""
        self._has_unprotected = True

    def find(self, header: Header, raw: bytes) -> tuple[Channel | None, int]:
        """Return the channel that a request belongs to, and the status with which to refuse it (0: accept)."""
        if header.auth_length:
            at = header.body_end + 4
            order: Literal["little", "big"] = "little" if header.byte_order == "<" else "big"
            channel = self.by_id.get(int.from_bytes(raw[at : at + 4], order))
            if channel is None:
                return None, RPC_S_ACCESS_DENIED
        else:
            channel = self._implied()
            if channel is None:
                return None, 0 if self._accepts_unauthenticated else RPC_S_ACCESS_DENIED
        return channel, 0 if channel.usable else RPC_S_ACCESS_DENIED

    def caller(self, channel: Channel | None) -> RpcCaller:
        """Return the caller on the channel."""
        if channel is None:
            return UNAUTHENTICATED
        caller = self._callers.get(channel)
        if caller is None:
            identity = channel.context.identity or ANONYMOUS
            # Deviation D-18: the session key of an anonymous login is public, so it protects nothing.
            level = AuthLevel.NONE if identity.anonymous else AuthLevel(channel.level)
            caller = RpcCaller(identity, level)
            self._callers[channel] = caller
        return caller

    def _implied(self) -> Channel | None:
        """Return the channel of requests without a verifier: the only one, if its level is CONNECT (3.3.1.5.4), or one
        of several (deviation D-16) of this level and of the same user, from clients that authenticate per interface."""
        channels = list(self.by_id.values())
        if not channels or any(channel.level != AuthLevel.CONNECT for channel in channels):
            return None
        users = {channel.context.identity for channel in channels if channel.usable}
        return channels[0] if len(channels) == 1 or (len(users) == 1 and all(c.usable for c in channels)) else None

    @property
    def _accepts_unauthenticated(self) -> bool:
        """Whether requests without a verifier are served as anonymous. They are not if the client has requested
        protection for everything that it bound, because an attacker in the middle may have sent them."""
        return self._has_unprotected or all(channel.level < AuthLevel.PKT for channel in self.by_id.values())
