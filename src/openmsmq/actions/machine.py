"""The security descriptor of the machine of a site."""

from __future__ import annotations

from openmsmq.actions.site import ActionSite
from openmsmq.admin.guards import Guard
from openmsmq.admin.machine_guard import MachineGuard
from openmsmq.model.default_descriptors import default_machine_security


def machine_guard(site: ActionSite) -> Guard:
    """Return the guard of the queue manager; changes are recorded in the audit log. Raises NoDataDirectory."""

    def on_change(before: str, after: str) -> None:
        site.record(
            "machine.permissions", "machine", site.machine, before={"security": before}, after={"security": after}
        )

    return MachineGuard(site.data_dir, default_machine_security(), on_change)
