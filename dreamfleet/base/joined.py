"""Where machines that have joined a run are described, `joined/NAME/status.json`, and when they count as gone."""

FOLDER = "joined"
OWNER = "owner-"  # before the name of the machine, in the name of a file beside the status
SILENT_S = 20.0  # whoever has not been heard of for so long is not there, whatever it said last
GONE_S = 600.0  # and after so long it is not missed any more: whoever joined may leave
ENDED = ("complete", "stopped", "failed", "done")
MOST_MACHINES = 1000  # that are described
PLACE = r"\w[\w.-]{0,99}"  # names of their directories


def judge(state: str, seen_s: float) -> str:
    """How a machine does that said so `seen_s` ago."""
    return "silent" if seen_s > SILENT_S and state not in ENDED else state
