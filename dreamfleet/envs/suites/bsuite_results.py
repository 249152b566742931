"""The result file of an experiment as bsuite's own analysis reads it, and what is kept to go on with it later."""

import csv
import json
from pathlib import Path

from dreamfleet.base.files import replace_file

# Tenths of a power of ten: bsuite writes down the episodes 1, 1.2, 1.4, ... times it, up to the next one.
LOGGED = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)


class Results:
    """`bsuite_id_-_NAME-NUMBER.csv` in a directory, with a line for some episodes and a JSON file for the last one."""

    def __init__(self, directory: str, name: str):
        stem = name.replace("/", "-")
        self._rows = Path(directory).expanduser() / f"bsuite_id_-_{stem}.csv"
        self._last = self._rows.parent / f"{stem}.json"
        self._rows.parent.mkdir(parents=True, exist_ok=True)

    def load(self) -> dict[str, float]:
        """The numbers after the last episode that was added, if there is any."""
        return json.loads(self._last.read_text()) if self._last.exists() else {}

    def add(self, row: dict[str, float]) -> None:
        """Takes the numbers after an episode."""
        if is_logged(int(row["episode"])):
            self._append(row)
        replace_file(self._last, json.dumps(row))

    def _append(self, row: dict[str, float]) -> None:
        is_new = not self._rows.exists()
        with self._rows.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(row))
            if is_new:
                writer.writeheader()
            writer.writerow(row)


def is_logged(episode: int) -> bool:
    """Whether bsuite writes down an episode: those that are evenly spread over the logarithm of their number."""
    power = 10 ** (len(str(episode)) - 1)
    return any(10 * episode == tenths * power for tenths in LOGGED)
