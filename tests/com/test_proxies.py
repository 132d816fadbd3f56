"""Documentation and signatures of the proxies of automation objects."""

from __future__ import annotations

import inspect

import pytest

from openmsmq.com.proxies import INTERFACES, proxy_class


def documented(interface: str, method: str) -> str | None:
    doc: str | None = getattr(proxy_class(INTERFACES[interface]), method).__doc__
    return doc


@pytest.mark.parametrize(
    ("interface", "method", "text"),
    [
        ("IMSMQQueueInfo", "Delete", "no parameters"),
        ("IMSMQQueueInfo", "Open", "Access: "),
        ("IMSMQQueueInfo", "Open", "returns IMSMQQueue*"),
        ("IMSMQQueueInfos", "Reset", "no parameters"),
    ],
)
def test_the_documentation_of_a_method_has_its_parameters_and_their_types(
    interface: str, method: str, text: str
) -> None:
    said = documented(interface, method)
    assert said is not None and said.startswith("DISPID 0x")
    shown = said.partition("; ")[2]
    assert text in shown and ("no parameters" in shown) is (text == "no parameters")


def test_a_method_has_the_parameters_of_the_idl() -> None:
    signature = inspect.signature(proxy_class(INTERFACES["IMSMQQueueInfo"]).Create)
    assert [(name, each.default is ...) for name, each in signature.parameters.items()] == [
        ("self", False), ("IsTransactional", True), ("IsWorldReadable", True),
    ]  # fmt: skip


def test_the_documentation_of_an_object_has_its_properties() -> None:
    lines = (proxy_class(INTERFACES["IMSMQQueueInfo"]).__doc__ or "").splitlines()
    assert lines[0] == "IMSMQQueueInfo of MC-MQAC."
    assert "    Label: BSTR" in lines and "    QueueGuid: BSTR (read only)" in lines
