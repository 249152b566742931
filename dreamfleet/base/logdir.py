"""What several packages must agree on about the log directory."""

KEY_FILE = "run.key"  # for TCP connections
KEY_VARIABLE = "DREAMFLEET_KEY_FILE"  # names another one

REPLAY = "replay"  # has a directory for each buffer
TRAIN_REPLAY = f"{REPLAY}/train"
COUNTS = f"{REPLAY}/counts"  # inserts and samples
