"""Sizes that several packages must agree on."""

STEP_ID_BYTES = 20  # of `stepid`: 16 of the segment, then the row as big-endian uint32
BLOCK_ROWS = 64  # rows that the replay reserves for one environment at a time
MOST_ENVS = 1 << 14  # of one run: what is kept for each has a limit, whatever numbers peers send

IMAGE_FACTOR = 16  # by which the encoder shrinks the sides of an image
IMAGE_SIDES = range(3 * IMAGE_FACTOR, 16 * IMAGE_FACTOR + 1, IMAGE_FACTOR)  # 3 to 16 pixels are left behind it
