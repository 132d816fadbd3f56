"""Foreign sites as a chapter of the queue manager: their connector queues exist, and messages find them."""

from __future__ import annotations

import logging
from dataclasses import replace

from openmsmq.queueing.access import SYSTEM, default_queue_security
from openmsmq.queueing.connectors import ConnectorQueue, ForeignSite, connector_definition
from openmsmq.queueing.core import storing
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.records import encode_properties
from openmsmq.queueing.staging import Staging
from openmsmq.store import Drop, Put

logger = logging.getLogger(__name__)


class Foreign(Staging):
    """What happens to connector queues at the start; afterwards they are as other queues."""

    def declare_sites(self) -> None:
        """Give each foreign site of the machine its two connector queues, and route its machines there.

        Queues of a site that is no longer declared stay as long as they hold messages. Raises MessageStorageFailed.
        """
        state = self.state
        declared = set()
        for site in state.machine.foreign_sites:
            plain, exactly_once = (self._connector_queue(site, exactly_once=kind) for kind in (False, True))
            plain.exactly_once = exactly_once
            declared |= {plain, exactly_once}
            state.foreign_machines.update(dict.fromkeys((machine.lower() for machine in site.machines), plain))
        for queue in [queue for queue in state.connectors.values() if queue not in declared]:
            self._undeclared(queue)
        for outgoing in state.outgoing.values():
            route = state.connector_for(outgoing.destination)
            if route is not None and outgoing.entries:
                logger.warning(
                    "%d messages in the outgoing queue for %s are older than the foreign site %s: they stay there",
                    len(outgoing), outgoing.destination, route.properties.label,
                )  # fmt: skip

    def _connector_queue(self, site: ForeignSite, *, exactly_once: bool) -> ConnectorQueue:
        name = site.format_name(exactly_once=exactly_once)
        queue = self.state.connectors.get(name)
        if queue is not None:
            if queue.properties.label != site.name:
                self._define(queue, replace(queue.properties, label=site.name))
            return queue
        now = self.state.clock() // 1000
        properties = QueueProperties(
            str(name), instance=self._random(16), label=site.name, transactional=exactly_once, create_time=now,
            modify_time=now, security=default_queue_security(SYSTEM.sid).pack(),
        )  # fmt: skip
        number, numbered = self.state.new_queue_number()
        with storing():
            self.state.store.append([Put(connector_definition(number), encode_properties(properties)), numbered])
        return self.state.register_connector(number, properties)

    def _undeclared(self, queue: ConnectorQueue) -> None:
        name = queue.format_name
        if queue.entries or self.lowest_staged(queue, 0):
            logger.warning("foreign site %s is not declared: %s keeps %d messages", name.guid, name, len(queue))
            return
        with storing():
            self.state.store.append([Drop(connector_definition(queue.number)), *self.drop_groups([queue])])
        self.groups.pop(queue.number, None)
        self.state.forget_connector(queue)
