"""The arrays that packages hand to each other."""

import numpy as np

Batch = dict[str, np.ndarray]  # by key, all with the same leading dimensions
