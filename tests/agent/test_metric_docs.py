"""Every metric of Dreamer is in the documentation."""

import functools

import elements
import jax
import numpy as np

from dreamfleet.agent.dreamer import learning, reporting
from dreamfleet.agent.dreamer.model import Model
from tests.agent.batches import ACT_SPACE, IMAGE_SPACE, OBS_SPACE, QUICK, make_batch, make_config
from tests.documented import find_undocumented


def test_every_metric_of_dreamer_is_documented():
    config, obs_space = make_config(dreamer__grad_norms=True), {**OBS_SPACE, **IMAGE_SPACE}
    obs_space["image"] = elements.Space(np.uint8, (48, 48, 3))
    data = make_batch(obs_space, ACT_SPACE, config)
    del data["stepid"]

    def compute(key: jax.Array) -> dict:
        model = Model(key, obs_space, ACT_SPACE, config.dreamer, tuning=QUICK)
        state = learning.make_learning(model, key, config.dreamer)
        carry = learning.initial_carry(model, config.batch_size)
        options = {"options": config.dreamer, "context": config.replay_context}
        update = functools.partial(learning.update, **options, has_priority=False)
        *_, trained = update(model, state, carry, data)
        _, reported = reporting.report(model, state, carry, data, **options)
        return {"train": trained, "report": reported}

    metrics = jax.eval_shape(compute, jax.random.key(0))  # only the names matter
    trained, reported = metrics["train"].keys(), metrics["report"].keys()
    assert not find_undocumented({f"train/{key}" for key in trained})
    assert {"grad_norm/dyn/rssm", "open_loop/image", "open_loop_error/vector"} <= reported
    # What a report has in common with an update has its line there.
    assert not find_undocumented({f"report/{key}" for key in reported - trained - {"open_loop/image"}})
