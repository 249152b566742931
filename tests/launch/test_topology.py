"""Fleets as data."""

import itertools
import json

import pytest

from dreamfleet.base.seeds import derive_seed, replica_seed
from dreamfleet.launch.topology import RestartPolicy, RoleSpec, load_target


def test_seeds_are_the_same_on_every_machine_and_in_every_version():
    assert derive_seed(0, "agent", 0, 0) == 1657558390
    assert derive_seed(7, "env3", 2, 1) == 850519701


def test_seeds_are_32_bit_and_distinct():
    keys = itertools.product((0, 1, -5), ("agent", "env1", "env11"), range(11), range(3))
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_delay_doubles_up_to_its_limit():
    policy = RestartPolicy(backoff_s=0.5, backoff_max_s=3.0)
    assert [policy.delay_s(step) for step in (0, 1, 2, 3, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_target_is_a_callable_or_its_name():
    assert load_target(json.dumps) is json.dumps
    assert load_target("json:dumps") is json.dumps
    with pytest.raises(AttributeError, match="nothing"):
        load_target("json:nothing")


def test_specs_do_not_share_defaults():
    one, two = RoleSpec("one", print), RoleSpec("two", print)
    assert one.kwargs is not two.kwargs and one.environ is not two.environ


def test_replicas_have_seeds_of_their_own_and_the_first_has_those_of_the_run():
    assert replica_seed(7, 0) == 7
    assert len({replica_seed(seed, replica) for seed in range(5) for replica in range(5)}) == 25
