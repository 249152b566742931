"""Programs that know a fleet only by its portal messages: an environment, an agent, a replay and a logger.

They use the portal library as it comes, in which an error answer, an unknown method or a key that is not an array ends
the program, and nothing of dreamfleet. Environment and agent count as those of `dreamfleet.testing` do, which check
what they get. Beside the messages, the servers answer to `facts`, for tests.

    python portal_peers.py ROLE '{"name": value, ...}'
"""

import collections
import json
import random
import sys
import threading

import numpy as np
import portal

portal.context.serverkw = {"host": "127.0.0.1"}


def run_env(actor_addr, envid, is_eval=False, image_size=0, length=10):
    """Asks for actions; survives a lost connection, and no error."""
    actor = portal.Client(actor_addr, f"Env{envid}", autoconn=False)
    actor.connect()
    life, episode, step, is_done = random.getrandbits(50), -1, 0, True
    action = {}
    while True:
        if is_done or action["reset"]:
            episode, step = episode + 1, 0
        else:
            assert action["action"] == (envid + 3 * step) % 7, (action, envid, step)
            step += 1
        is_done = step >= length
        obs = {
            "step": np.int32(step),
            "episode": np.int32(episode),
            "env": np.int32(envid),
            "life": np.int64(life),
            "log/double": np.float32(2 * step),
            "reward": np.float32(step > 0),
            "is_first": np.bool_(step == 0),
            "is_last": np.bool_(is_done),
            "is_terminal": np.bool_(is_done),
        }
        if image_size:
            obs["image"] = np.full((image_size, image_size, 3), step, np.uint8)
        try:
            action = actor.act({"envid": envid, **obs, "is_eval": is_eval}).result()
        except portal.Disconnected:
            actor.connect()
            is_done = True


def run_replay(replay_addr, batch_size=4, length=9, report_length=5, train_ratio=8.0):
    """Keeps all sequences; samples wait for data, and those of training for the ratio too."""
    rows, items = collections.defaultdict(list), {False: [], True: []}
    counts, keys = collections.Counter(), set()
    changed = threading.Condition()

    def add_batch(data):
        keys.update(data)
        with changed:
            for i, envid in enumerate(data.pop("envid").tolist()):
                row = {key: value[i] for key, value in data.items()}
                is_eval = bool(row.pop("is_eval"))
                kept = rows[envid]
                if kept and row["is_first"]:
                    kept[-1]["is_last"] = np.bool_(True)
                counts["eval_rows" if is_eval else "rows"] += 1
                kept.append({**row, "stepid": np.frombuffer(counts.total().to_bytes(20, "big"), np.uint8)})
                if len(kept) >= length:
                    items[is_eval].append((envid, len(kept) - length))
            changed.notify_all()
        return {}

    def sample(mode, steps, is_allowed=lambda: True):
        with changed:
            changed.wait_for(lambda: items[mode == "eval"] and is_allowed())
            counts[mode] += 1
            starts = random.choices(items[mode == "eval"], k=batch_size)
            chunks = [rows[envid][start : start + steps] for envid, start in starts]
            batch = {k: np.stack([np.stack([row[k] for row in chunk]) for chunk in chunks]) for k in chunks[0][0]}
        batch["is_first"][:, 0] = True
        return {**batch, "consec": np.zeros(batch["is_first"].shape, np.int32)}

    def is_due():
        return counts["train"] * batch_size * (length - 1) < train_ratio * counts["rows"]

    def update(data):
        keys.update(f"update {key}" for key in data)

    server = portal.Server(replay_addr, "Replay")
    server.bind("add_batch", add_batch, workers=1)
    server.bind("sample_batch_train", lambda: sample("train", length, is_due), workers=1)
    server.bind("sample_batch_report", lambda: sample("report", report_length), workers=1)
    server.bind("sample_batch_eval", lambda: sample("eval", report_length), workers=1)
    server.bind("update", update, workers=1)
    server.bind("facts", lambda: {**counts, "keys": " ".join(sorted(keys))}, workers=1)
    server.start()


def run_logger(logger_addr):
    """Adds up the scores, and notes whose images it gets."""
    steps, scores, lengths = collections.Counter(), [], collections.Counter()
    totals, filmed, metrics, keys = collections.Counter(), set(), set(), set()

    def tran(rows):
        keys.update(rows)
        envids = rows.pop("envid").tolist()
        steps["train"] += int((~rows["is_eval"]).sum())
        for i, envid in enumerate(envids):
            row = {key: value[i] for key, value in rows.items()}
            if row["is_first"]:
                totals[envid] = lengths[envid] = 0
            totals[envid] += float(row["reward"])
            lengths[envid] += 1
            filmed.update(envid for value in row.values() if value.dtype == np.uint8 and value.ndim == 3)
            if row["is_last"]:
                scores.append(totals[envid])

    def facts():
        numbers = {"steps": steps["train"], "episodes": len(scores), "scores": sorted(set(scores))}
        named = {k: " ".join(sorted(map(str, v))) or "none" for k, v in sets.items()}  # the library takes no empty text
        return {**numbers, **named}

    sets = {"metrics": metrics, "keys": keys, "filmed": filmed, "heard": lengths}
    server = portal.Server(logger_addr, "Logger")
    server.bind("add", lambda values: metrics.update(values))
    server.bind("tran", tran)
    server.bind("facts", facts)
    server.start()


def run_agent(actor_addr, replay_addr, logger_addr, batch=2):
    """Acts and learns as the counting agent, without checks; what it does is in the metric `updates` of its logger."""
    replay = portal.Client(replay_addr, "ActorReplay", maxinflight=8)
    logger = portal.Client(logger_addr, "ActorLogger", maxinflight=8)
    orders = set()

    def act(obs):
        orders.add(" ".join(obs))
        envid, is_eval = obs.pop("envid"), obs.pop("is_eval")
        assert envid.shape == (batch,), envid
        assert (obs["env"] == envid).all(), "values are in the places of others"
        action = ((envid + 3 * obs["step"]) % 7).astype(np.int32)
        echo = (obs["step"] * 10).astype(np.int32)
        rows = {"envid": envid, "is_eval": is_eval, **obs, "action": action, "echo": echo}
        return {"action": action, "reset": obs["is_last"]}, rows

    def send(rows):
        replay.add_batch({key: value for key, value in rows.items() if not key.startswith("log/")})
        logger.tran(rows)

    def learn():
        source = portal.Client(replay_addr, "LearnerReplay")
        updates = 0
        while True:
            data = source.sample_batch_train().result()
            source.update({"stepid": data["stepid"], "echo": data["echo"]}).result()
            updates += 1
            logger.add({"train/updates": np.float32(updates), "orders": np.float32(len(orders))})

    server = portal.BatchServer(actor_addr, "Actor", process=False)
    server.bind("act", act, send, batch, 1)
    learner = portal.Thread(learn, start=True)
    server.start(block=False)
    learner.join()


if __name__ == "__main__":
    role, options = sys.argv[1:]
    {"env": run_env, "replay": run_replay, "logger": run_logger, "agent": run_agent}[role](**json.loads(options))
