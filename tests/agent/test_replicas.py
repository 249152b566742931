"""Two processes that train one agent compute what one process does with all of their batches."""

import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.agent import replica
from tests.fleet import DEADLINE_S

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of one process with all rows, and of each of two replicas."""
    directory = tmp_path_factory.mktemp("replicas")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = [directory / f"{number}.npz" for number in range(replica.REPLICAS)]
    commands = [
        [sys.executable, "-m", "tests.agent.replica", *map(str, (n, port, path))] for n, path in enumerate(files)
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for command in commands]
    try:
        for _ in ("state", "update"):
            assert all(any(line == "ready\n" for line in process.stdout) for process in processes)
            for process in processes:
                process.stdin.write("go\n")
                process.stdin.flush()
        alone = replica.train()
        assert [process.wait(DEADLINE_S) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return alone, *(dict(np.load(path)) for path in files)


def test_losses_are_those_of_one_process_with_the_whole_batch(results):
    alone, *replicas = results
    losses = [key for key in alone if key.startswith("loss/")]
    assert len([key for key in losses if key.startswith("loss/total@")]) == replica.UPDATES
    most = max(np.max(np.abs(ours[key] - alone[key])) for ours in replicas for key in losses)
    print(f"losses of {replica.UPDATES} updates differ by at most {most:.1e}")
    for ours in replicas:
        for key in losses:
            np.testing.assert_allclose(ours[key], alone[key], rtol=0, atol=1e-4, err_msg=key)


def test_replicas_have_the_same_state_which_is_that_of_one_process(results):
    alone, first, second = results
    for key in (key for key in alone if key.startswith("state/")):
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)
        np.testing.assert_allclose(first[key], alone[key], rtol=1e-3, atol=1e-4, err_msg=key)
    assert first["numbers"].tolist() == second["numbers"].tolist() == [7, 0.1]


def test_each_replica_has_its_own_rows_and_acts_by_itself(results):
    alone, first, second = results
    keys = [key for key in alone if key.startswith("refreshed/")]
    assert "refreshed/dyn/deter" in keys
    for key in keys:
        both = np.concatenate([first[key], second[key]])
        np.testing.assert_allclose(both.astype(float), alone[key].astype(float), atol=1e-2, err_msg=key)
    np.testing.assert_allclose(first["act/move"], alone["act/move"], atol=1e-4)
    np.testing.assert_allclose(second["act/move"], alone["act/move"], atol=1e-4)


def test_a_report_of_one_replica_is_that_of_one_process(results):
    alone, first, second = results
    keys = [f"report/loss/{key}" for key in ("vector", "reward", "cont", "dyn", "rep")]  # of the world model
    assert not any(key.startswith("report/") for key in second)
    for key in keys:
        np.testing.assert_allclose(first[key], alone[key], rtol=1e-3, atol=1e-3, err_msg=key)
