"""What a check of an environment found, for a person or a program to read; made by `checker`."""

from typing import NamedTuple

import elements

LEVELS = ("ok", "warning", "error")


class Finding(NamedTuple):
    """One thing that is right or wrong: what was looked at, and what to do about it."""

    level: str
    check: str
    message: str


class CheckReport:
    """Collects findings; of several with the same `check` and `about`, the first is kept with a count."""

    def __init__(self):
        self.facts: dict[str, float] = {}
        self.spaces: dict[str, elements.Space] | None = None  # of observations and actions, once it was built
        self.episodes = 0  # that were finished
        self.raised: Exception | None = None  # by the environment
        self._findings: dict[tuple[str, str], Finding] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, level: str, check: str, message: str, about: str = "") -> None:
        assert level in LEVELS, level
        key = check, about or message
        self._findings.setdefault(key, Finding(level, check, message))
        self._counts[key] = self._counts.get(key, 0) + 1

    def has(self, check: str) -> bool:
        """Whether anything but praise was found by a check."""
        return any(finding.check == check and finding.level != "ok" for finding in self._findings.values())

    def count(self, level: str) -> int:
        return sum(finding.level == level for finding in self._findings.values())

    @property
    def is_ok(self) -> bool:
        return self.count("error") == 0

    @property
    def findings(self) -> list[Finding]:
        """All findings in the order in which they came up, saying how often those came up again."""
        found = []
        for key, finding in self._findings.items():
            times = self._counts[key]
            again = f" ({times} times)" if times > 1 else ""
            found.append(finding._replace(message=finding.message + again))
        return found

    def as_dict(self) -> dict:
        findings = [finding._asdict() for finding in self.findings]
        return {"ok": self.is_ok, "findings": findings, "facts": self.facts}

    def __str__(self) -> str:
        lines = []
        for level, check, message in self.findings:
            start = f"{level:<8} {check:<12} "
            lines.append(start + message.replace("\n", "\n" + " " * len(start)))
        summary = "passed" if self.is_ok else "failed"
        lines.append(f"{summary}: {self.count('error')} errors, {self.count('warning')} warnings")
        return "\n".join(lines)
