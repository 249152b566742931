"""What the learner says of a run, as progress."""

from dreamfleet.options import read_args
from dreamfleet.roles.progress import ProgressKeeper
from dreamfleet.roles.protocol import ReplayCounts, RunProgress
from tests.fleet import make_args


def test_a_learner_whose_logger_is_elsewhere_knows_steps_and_rates(tmp_path):
    keeper = ProgressKeeper(read_args(make_args(tmp_path, steps=300, batch_length=8)))
    keeper.take_all(
        RunProgress(ReplayCounts(inserts=40, samples=10, items=30, capacity=500, steps=40), updates=2, elapsed_s=1.0)
    )
    counts = ReplayCounts(inserts=100, samples=50, items=90, capacity=500, steps=100)
    progress = keeper.take_all(RunProgress(counts, updates=12, elapsed_s=3.0))
    assert (progress.step, progress.total_steps, progress.updates) == (100, 300, 12)
    assert (progress.env_rate, progress.update_rate, progress.ratio) == (30.0, 5.0, 4.0)
    assert (progress.replay_fill, progress.replay_capacity, round(progress.eta_s or 0, 1)) == (100, 500, 6.7)


def test_the_replay_buffer_is_full_at_its_capacity(tmp_path):
    keeper = ProgressKeeper(read_args(make_args(tmp_path)))
    keeper.take(RunProgress(ReplayCounts(inserts=900, items=480, capacity=500, steps=531), updates=0, elapsed_s=1.0))
    assert (keeper.progress.replay_fill, keeper.progress.replay_capacity) == (500, 500)
    keeper.take(RunProgress(ReplayCounts(inserts=900, items=480, steps=531), updates=0, elapsed_s=1.0))
    assert (keeper.progress.replay_fill, keeper.progress.replay_capacity) == (531, 0)


def test_a_burst_of_updates_is_not_taken_for_their_rate(tmp_path):
    keeper = ProgressKeeper(read_args(make_args(tmp_path)))
    for elapsed_s, updates in ((1.0, 10), (2.0, 20), (2.001, 23), (3.0, 30)):
        progress = keeper.take_all(RunProgress(ReplayCounts(inserts=4 * updates), updates=updates, elapsed_s=elapsed_s))
        assert elapsed_s == 1.0 or (progress.update_rate, progress.env_rate) == (10.0, 40.0)
    assert progress.updates == 30
