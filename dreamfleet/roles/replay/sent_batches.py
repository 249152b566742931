"""Lets a call for a batch be repeated: what was lost on the way is sent again, and counted once."""

from dreamfleet import rpc
from dreamfleet.roles.protocol import SampleRequest


class SentBatches:
    """Batches that a learner may not have received; it says which call this is, and up to which it has answers."""

    def __init__(self):
        self._learner = ""
        self._replies: dict[int, rpc.Reply] = {}

    def find(self, request: SampleRequest) -> rpc.Reply | None:
        """The answer that this very call had before."""
        if not request.learner:
            return None
        is_same, self._learner = self._learner == request.learner, request.learner
        replies = self._replies.items() if is_same else ()
        self._replies = {number: reply for number, reply in replies if number > request.received}
        return self._replies.get(request.number)

    def keep(self, request: SampleRequest, reply: rpc.Reply) -> rpc.Reply:
        if request.learner:
            self._replies[request.number] = reply
        return reply
