"""How far a run is, from what the learner says of it; the logger keeps it, and a learner whose logger is elsewhere."""

from dreamfleet.metrics.progress import Eta, Progress
from dreamfleet.options import RoleOptions
from dreamfleet.roles.protocol import RunProgress

LEAST_S = 0.5  # of a rate: updates come in bursts, and news of them may follow each other closely


class ProgressKeeper:
    """Takes in what the learner says, again and again, and keeps `progress` up to date with it."""

    def __init__(self, options: RoleOptions):
        self.progress = Progress(
            total_steps=options.steps, total_updates=options.updates, target_ratio=max(0.0, options.train_ratio)
        )
        self._eta = Eta(options.steps, options.duration, options.updates)
        self._batch_length = options.batch_length
        self._since: RunProgress | None = None  # what rates are measured from

    def take(self, sent: RunProgress) -> None:
        """Updates everything but the step, scores and rates of environments, which the logger sees itself."""
        progress, counts = self.progress, sent.counts
        if before := self._begin_interval(sent):
            updates = max(0, sent.updates - before.updates)
            progress.update_rate = updates / (sent.elapsed_s - before.elapsed_s)
        progress.updates, progress.elapsed_s = sent.updates, sent.elapsed_s
        # A store keeps up to two segments more than it promises, which says nothing to a user.
        progress.replay_fill = min(counts.steps, counts.capacity) if counts.capacity else counts.steps
        progress.replay_capacity = counts.capacity
        if counts.inserts:
            progress.ratio = counts.samples * self._batch_length / counts.inserts

    def take_all(self, sent: RunProgress) -> Progress:
        """The same where no logger sees the environments: the step and their rate are those of the replay."""
        before = self._since
        self.take(sent)
        progress = self.progress
        progress.step = max(progress.step, sent.counts.inserts)
        if before and self._since is sent and sent.elapsed_s > before.elapsed_s:
            steps = max(0, sent.counts.inserts - before.counts.inserts)
            progress.env_rate = steps / (sent.elapsed_s - before.elapsed_s)
        self.estimate()
        return progress

    def _begin_interval(self, sent: RunProgress) -> RunProgress | None:
        """What rates are measured from, if that is long enough ago; the next ones are measured from now on."""
        before = self._since
        if before and 0 <= sent.elapsed_s - before.elapsed_s < LEAST_S:
            return None
        self._since = sent
        return before if before and sent.elapsed_s > before.elapsed_s else None

    def estimate(self) -> None:
        """Says how long the rest takes, if that can be said."""
        progress = self.progress
        progress.eta_s = self._eta.estimate(progress.step, progress.updates, progress.elapsed_s)
