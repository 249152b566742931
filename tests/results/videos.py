"""Reads videos back."""

import numpy as np
from PIL import Image, ImageSequence


def read_mp4(path) -> np.ndarray:
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def read_gif(path) -> np.ndarray:
    with Image.open(path) as image:
        return np.stack([np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)])
