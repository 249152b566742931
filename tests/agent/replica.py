"""One of several processes that train an agent: `python -m tests.agent.replica REPLICA PORT FILE`.

What it measured and what it would save goes to the file.
"""

import sys
from pathlib import Path

from tests import quick_jax

quick_jax.set_up()

import elements  # noqa: E402
import numpy as np  # noqa: E402

from dreamfleet.agent.contract import ReplicaPlace  # noqa: E402
from dreamfleet.agent.dreamer import Dreamer  # noqa: E402
from tests.agent.batches import QUICK, STEP_SPACES, make_batch, make_config  # noqa: E402

REPLICAS = 2
ROWS = 4  # of each replica
UPDATES = 20
OBS_SPACE = {"vector": elements.Space(np.float32, (5,)), **STEP_SPACES}
ACT_SPACE = {"move": elements.Space(np.float32, (2,), -1, 1), "reset": elements.Space(bool)}
CONFIG = make_config(dreamer__warmup=0, batch_length=4, report_length=4)
# One device for the rows of each replica: the values of a critic that has just begun are differences of large numbers,
# which depend on how the rows are summed up. Without a warm-up, one sampled action in 20 updates falls the other way on
# one device; with the default one, losses differ by less than 1e-5 there.
ALONE = make_config(dreamer__warmup=0, batch_length=4, report_length=4, jax__train_devices=REPLICAS)


def train(replica: int | None = None) -> dict[str, np.ndarray]:
    """The losses of some updates on all rows, or on those of one replica, and the state after them."""
    first, rows = (0, REPLICAS * ROWS) if replica is None else (replica * ROWS, ROWS)
    agent = Dreamer(OBS_SPACE, ACT_SPACE, ALONE if replica is None else CONFIG, QUICK)
    results = {}
    if replica is not None:
        agent.load(
            {name: np.full_like(leaf, replica) for name, leaf in agent.save().items()} if replica else agent.save()
        )
        meet()
        results["numbers"] = np.asarray(agent.share_state((7 + replica, 0.1 + replica)))

    def batches():
        for seed in range(UPDATES + 1):
            batch = make_batch(OBS_SPACE, ACT_SPACE, CONFIG, seed, rows=REPLICAS * ROWS)
            yield {key: value[first : first + rows] for key, value in batch.items()}

    carry = agent.init_train(rows)
    for number, data in enumerate(agent.stream(batches())):
        if replica is not None and not number:
            agent.prepare_update(carry, data)
            meet()
        carry, outs, metrics = agent.train(carry, data)
        results |= {f"{key}@{number}": np.asarray(v) for key, v in metrics.items() if key.startswith("loss/")}
    results |= {f"refreshed/{key}": value for key, value in outs["replay"].items()}
    obs = {key: np.ones((2, *space.shape), space.dtype) for key, space in OBS_SPACE.items()}
    results |= {f"act/{key}": value for key, value in agent.policy(agent.init_policy(2), obs, "eval")[1].items()}
    if not replica:  # alone, as replica 0 does: the others need not take part
        report = agent.report(agent.init_report(ROWS), next(agent.stream([make_batch(OBS_SPACE, ACT_SPACE, CONFIG)])))[
            1
        ]
        results |= {f"report/{key}": value for key, value in report.items() if key.startswith("loss/")}
    return results | {f"state/{key}": value for key, value in agent.save().items()}


def meet() -> None:
    """Waits until the other replica is as far, as its learner would."""
    print("ready", flush=True)
    sys.stdin.readline()


def main(replica: int, port: int, path: Path) -> None:
    address = f"127.0.0.1:{port}"
    Dreamer.join_replicas(ReplicaPlace(replica, REPLICAS, address, address), CONFIG)
    np.savez(path, **train(replica))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
