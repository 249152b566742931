"""Lets a call for a batch be repeated: what was lost on the way is sent again, and counted once."""

from dreamfleet import rpc


class SentBatches:
    """Batches that a learner may not have received; it says which call this is, and up to which it has answers."""

    def __init__(self):
        self._learner = ""
        self._replies: dict[int, rpc.Reply] = {}

    def find(self, meta: dict) -> rpc.Reply | None:
        """The answer that this very call had before."""
        if "learner" not in meta:
            return None
        is_same, self._learner = self._learner == meta["learner"], meta["learner"]
        replies = self._replies.items() if is_same else ()
        self._replies = {number: reply for number, reply in replies if number > int(meta["received"])}
        return self._replies.get(int(meta["number"]))  # portal carries numbers as arrays

    def keep(self, meta: dict, reply: rpc.Reply) -> rpc.Reply:
        if "learner" in meta:
            self._replies[int(meta["number"])] = reply
        return reply
