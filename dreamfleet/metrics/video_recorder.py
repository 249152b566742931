"""Records the frames of one episode now and then; the episode tracker owns one for training and one for evaluation."""

import numpy as np


class VideoRecorder:
    """Follows one environment, and keeps the first `max_frames` frames of an episode every `every_s` seconds."""

    def __init__(self, every_s: float, max_frames: int):
        self.env_id: int | None = None
        self._every_s = every_s
        self._max_frames = max_frames
        self._due = -np.inf
        self._frames: list[np.ndarray] | None = None  # None while not recording

    def follow(self, env_id: int | None) -> None:
        """Turns to another environment."""
        self.env_id = env_id
        self.cut()

    def add(self, frame: np.ndarray, is_first: bool, now: float) -> None:
        """Takes the next frame of the environment that is followed."""
        if is_first:
            self._frames = [] if now >= self._due else None
        if self._frames is None:
            return
        if self._frames and frame.shape != self._frames[0].shape:
            self.cut()
        elif len(self._frames) < self._max_frames:
            self._frames.append(frame.copy())  # a view would keep the whole batch in memory

    def finish(self, now: float) -> np.ndarray | None:
        """Ends the recording and returns it as (T, H, W, C), if there is one."""
        frames, self._frames = self._frames, None
        if not frames:
            return None
        self._due = now + self._every_s
        return np.stack(frames)

    def cut(self) -> None:
        """Throws away the recording in progress."""
        self._frames = None
