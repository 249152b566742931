"""What several packages must agree on about the log directory."""

METRICS = "metrics.jsonl"
SCORES, EVAL_SCORES = "scores.jsonl", "eval_scores.jsonl"  # one line per episode of training, and of evaluation
SERIES = (METRICS, SCORES, EVAL_SCORES)

KEY_FILE = "run.key"  # for TCP connections
KEY_VARIABLE = "DREAMFLEET_KEY_FILE"  # names another one

REPLAY = "replay"  # has a directory for each buffer
TRAIN_REPLAY = f"{REPLAY}/train"
HELD_OUT = "held_out"  # beside `train`, if episodes were held out
COUNTS = f"{REPLAY}/counts"  # inserts and samples
