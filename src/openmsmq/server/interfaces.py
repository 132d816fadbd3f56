"""The interfaces that the daemon offers."""

from __future__ import annotations

from openmsmq.protocols.dispatch import NdrInterface
from openmsmq.protocols.qm2qm import Qm2Qm
from openmsmq.protocols.qmcomm import QmComm
from openmsmq.protocols.qmcomm2 import QmComm2
from openmsmq.protocols.qmmgmt import QmMgmt
from openmsmq.protocols.remote_read import NegotiatedRemoteRead, RemoteRead
from openmsmq.protocols.xnremote import XnRemote
from openmsmq.server.config import Configuration, ConfigurationError

SERVED: tuple[type[NdrInterface], ...] = (QmComm, QmComm2, QmMgmt, RemoteRead, Qm2Qm, XnRemote)


def served(configuration: Configuration) -> list[type[NdrInterface]]:
    """Return the interfaces that the configuration enables."""
    negotiated = configuration.remote_read_security.is_negotiated
    offered = [one for one in SERVED if one is not XnRemote or configuration.transaction_security is not None]
    return [NegotiatedRemoteRead if negotiated and interface is RemoteRead else interface for interface in offered]


def check_interfaces(configuration: Configuration) -> None:
    """Raise ConfigurationError if `interface_levels` names an interface that is not served."""
    names = [interface.description.name for interface in SERVED]
    for name in configuration.levels_by_interface:
        if name not in names:
            raise ConfigurationError(f"interface_levels names {name!r}; allowed: {', '.join(names)}")
