"""DreamerV3 (Hafner et al., 2023): one agent class, its losses and its networks."""

from dreamfleet.agent.dreamer.agent import Dreamer as Dreamer
