"""A page of the console in Chromium."""

from __future__ import annotations

from typing import Any

from console.browser import ADMINISTRATOR, PASSWORD, port_of
from daemon import Daemon, eventually
from requirements import library


def says(locator: Any, text: str, seconds: float = 20) -> None:
    """Wait until an element contains a text."""
    eventually(lambda: text in locator.inner_text(), seconds)


#: Accessibility rules to check, including the best practices of axe.
STANDARDS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"], "resultTypes": ["violations"]}


class Tab:
    """A logged-in page that records its errors."""

    def __init__(self, chromium: Any, daemon: Daemon, **options: Any) -> None:
        self.context = chromium.new_context(base_url=f"http://127.0.0.1:{port_of(daemon)}", **options)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        self.page.on("console", self._console)
        self.page.goto("/")
        self.page.fill("[name=user]", ADMINISTRATOR)
        self.page.fill("[name=password]", PASSWORD)
        self.page.click("main button")
        assert self.page.url.endswith("/"), self.page.content()

    def _console(self, said: Any) -> None:
        if said.type == "error":
            self.wrong.append(f"{said.text} {said.location}")

    def visit(self, path: str) -> Any:
        """Visit a page and check its accessibility."""
        self.page.goto(path)
        self.hold(path)
        return self.page

    def hold(self, what: str) -> None:
        assert not self.wrong, (what, self.wrong)
        self.page.evaluate(library("axe_playwright_python.base", "make browser").AXE_SCRIPT)
        found = self.page.evaluate("options => axe.run(options)", STANDARDS)["violations"]
        assert not found, (what, [(one["id"], one["help"], [node["html"] for node in one["nodes"]]) for one in found])
        width = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], f"{what} scrolls sideways: {width}"
