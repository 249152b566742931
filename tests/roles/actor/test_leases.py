"""Numbers of environments for workers that join: never the same for two, and the same again for one that comes back."""

import math

import pytest

from dreamfleet.base.dimensions import MOST_ENVS
from dreamfleet.errors import BadRequest
from dreamfleet.roles.actor.leases import FILE, Leases
from dreamfleet.roles.protocol import Lease, LeaseRequest

TIMEOUT_S = 60.0


class Run:
    """What leases ask of the policy server."""

    def __init__(self, directory):
        self.directory = directory
        self.taken: set[int] = set()  # by another owner
        self.stepped: set[int] = set()

    def make(self, first: int = 0, timeout_s: float = TIMEOUT_S) -> Leases:
        path = self.directory / FILE
        return Leases(path, first, timeout_s, lambda env_id, _: env_id in self.taken, self.age_s)

    def age_s(self, env_id: int, _: bool) -> float:
        return 0.0 if env_id in self.stepped else math.inf


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def ask(leases: Leases, owner: str, worker: str = "env0", count: int = 2, is_eval: bool = False) -> Lease:
    return Lease.from_data(leases.give(LeaseRequest(owner, worker, count, is_eval).to_data(), {}))


def test_every_worker_has_numbers_of_its_own(run):
    leases = run.make()
    workers = [(owner, worker) for owner in ("here", "there") for worker in ("env0", "env2")]
    assert [ask(leases, *worker).envs for worker in workers] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert ask(leases, "there", "eval", 3, is_eval=True).envs == (8, 9, 10)


def test_a_worker_that_comes_back_has_the_same_numbers_in_another_life(run):
    leases = run.make()
    first = ask(leases, "here")
    ask(leases, "there")
    again = ask(leases, "here")
    assert again.envs == first.envs and again.life > first.life


def test_the_numbers_of_the_run_itself_are_not_given_out(run):
    assert ask(run.make(first=5), "here").envs == (5, 6)


def test_a_run_that_comes_back_with_more_environments_keeps_their_numbers(run):
    assert ask(run.make(first=2), "here").envs == (2, 3)
    assert ask(run.make(first=3), "here").envs == (3, 4)


def test_numbers_that_somebody_steps_without_a_lease_are_not_given_out(run):
    run.taken = {0, 2}
    leases = run.make()
    assert ask(leases, "here").envs == (1, 3)
    run.taken = {1}
    assert ask(leases, "here").envs == (0, 2), "its own were taken meanwhile"


def test_a_worker_that_wants_more_gets_others(run):
    leases = run.make()
    ask(leases, "here", count=2)
    ask(leases, "there", count=1)
    assert ask(leases, "here", count=3).envs == (0, 1, 3)
    assert ask(leases, "here", count=3, is_eval=True).envs == (0, 1, 3)


def test_a_silent_worker_loses_its_numbers_to_who_asks_next(run):
    leases = run.make(timeout_s=0.0)
    first = ask(leases, "here")
    assert ask(leases, "there").envs == first.envs
    lively = run.make(timeout_s=TIMEOUT_S)
    assert ask(lively, "here").envs == (2, 3), "they are somebody else's now"


def test_leases_survive_the_process_that_gave_them(run):
    before = [ask(run.make(), owner) for owner in ("here", "there")]
    after = [ask(run.make(), owner) for owner in ("there", "here", "elsewhere")]
    assert [lease.envs for lease in after] == [before[1].envs, before[0].envs, (4, 5)]
    lives = [lease.life for lease in before + after]
    assert len(set(lives)) == len(lives)


def test_a_damaged_file_costs_numbers_but_no_life_comes_twice(run):
    life = ask(run.make(), "here").life
    (run.directory / FILE).write_text('{"lives": 1, "lea')
    assert ask(run.make(), "here").life > life


@pytest.mark.parametrize(("owner", "count"), [("", 1), ("here", 0), ("here", MOST_ENVS + 1)])
def test_what_is_no_request_is_refused(run, owner, count):
    with pytest.raises(BadRequest):
        ask(run.make(), owner, count=count)


def test_who_takes_all_numbers_and_steps_none_takes_them_from_nobody_else(run):
    leases = run.make()
    honest = ask(leases, "here")
    run.stepped = set(honest.envs)
    flood = [ask(leases, f"stranger{i}", count=MOST_ENVS // 4).envs for i in range(20)]
    assert max(max(envs) for envs in flood) < 2 * MOST_ENVS
    assert not any(set(honest.envs) & set(envs) for envs in flood)
    assert ask(leases, "here") == Lease(honest.envs, honest.life + 21)
    assert len(ask(leases, "another", count=8).envs) == 8
    assert len((run.directory / FILE).read_text()) < 10 * MOST_ENVS
