"""The ports of the daemon. If another program uses a port, the next one is tried."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.server import RpcServer
from openmsmq.server.config import Configuration

logger = logging.getLogger(__name__)

PORT_INCREMENT: Final = 11  # [MS-MQMP] 3.1.4.24: tried when the default port is in use
PORT_ATTEMPTS: Final = 10
#: The offset of all ports if the daemon lacks the privilege for the port of the endpoint mapper.
UNPRIVILEGED_OFFSET: Final = 10000


class Ports:
    """`endpoints`: address and port of each open listener, by its purpose."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration: Final = configuration
        self._offset = configuration.port_offset
        self.endpoints: Final[dict[str, tuple[str, int]]] = {}

    def number(self, setting: str) -> int:
        """Return the port of a setting: the offset is added to a standard port, but not to a configured one."""
        return self._configuration.port(setting, self._offset)

    async def listen(self, rpc: RpcServer, mapper_table: InterfaceTable, table: InterfaceTable) -> None:
        """Open the ports of the endpoint mapper and of RPC. Raises OSError."""
        configuration = self._configuration
        try:
            self.endpoints["ept"] = await self._open(rpc, "endpoint_mapper_port", mapper_table)
        except PermissionError:
            if self._offset or configuration.endpoint_mapper_port is not None:
                raise
            logger.warning(
                "port %d requires root or CAP_NET_BIND_SERVICE; using port offset %d for all ports that are not given",
                self.number("endpoint_mapper_port"), UNPRIVILEGED_OFFSET,
            )  # fmt: skip
            self._offset = UNPRIVILEGED_OFFSET
            self.endpoints["ept"] = await self._open(rpc, "endpoint_mapper_port", mapper_table)
        # Clients learn a changed port from the endpoint mapper. A configured port must not depend on that.
        attempts = PORT_ATTEMPTS if configuration.rpc_port is None else 1
        for attempt in range(attempts):
            beyond = attempt * PORT_INCREMENT
            try:
                self.endpoints["qmcomm"] = await self._open(rpc, "rpc_port", table, beyond)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or attempt + 1 == attempts:
                    raise
                port = self.number("rpc_port") + beyond
                logger.warning(
                    "%s:%d is in use by another program, trying port %d",
                    configuration.listen, port, port + PORT_INCREMENT,
                )  # fmt: skip

    async def _open(self, rpc: RpcServer, setting: str, table: InterfaceTable, beyond: int = 0) -> tuple[str, int]:
        port = self.number(setting) + beyond
        with self.naming(port, setting):
            return await rpc.listen(self._configuration.listen, port, table)

    @contextmanager
    def naming(self, port: int, setting: str) -> Iterator[None]:
        """Add the address and the settings that define it to an OSError."""
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            where = f"{self._configuration.listen}:{port}"
            hint = f"settings: listen, {setting}, port_offset"
            raise type(error)(error.errno, f"can't listen on {where}: {reason} ({hint})") from error
