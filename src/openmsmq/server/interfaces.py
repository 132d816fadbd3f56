"""The interfaces that the daemon offers."""

from __future__ import annotations

from openmsmq.protocols.dispatch import NdrInterface
from openmsmq.protocols.qmcomm import QmComm
from openmsmq.protocols.qmcomm2 import QmComm2
from openmsmq.protocols.qmmgmt import QmMgmt

SERVED: tuple[type[NdrInterface], ...] = (QmComm, QmComm2, QmMgmt)
