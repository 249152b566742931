"""Modules that behave as the documented parts of packages which cannot be installed here, put into `sys.modules`."""

import importlib.machinery
import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest


def install(monkeypatch: pytest.MonkeyPatch, name: str, **attributes) -> types.ModuleType:
    """A module of this name, in its package if there is one, that counts as installed."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    package, _, last = name.rpartition(".")
    if package:
        monkeypatch.setattr(sys.modules[package], last, module, raising=False)
    return module


class Lab:
    """deepmind_lab.Lab: episodes of 10 frames; the image says the seed, the frame and what was done last."""

    made: list["Lab"] = []

    def __init__(self, level, observations, config={}, renderer="software", level_cache=None):  # noqa: B006
        assert all(isinstance(word, str) for word in (*config, *config.values())), "the game takes nothing else"
        self.level, self.names, self.config = level, observations, config
        self.frame, self.seed, self.is_open = -1, 0, True
        self.action = np.zeros(7, np.intc)
        Lab.made.append(self)

    def reset(self, episode=-1, seed=None):
        assert isinstance(seed, int)
        self.frame, self.seed = 0, seed

    def is_running(self) -> bool:
        return 0 <= self.frame < 10

    def step(self, action, num_steps=1) -> float:
        assert self.is_running(), "an episode that is over has to be reset"
        assert action.dtype == np.intc and action.shape == (7,)
        self.action, self.frame = action.copy(), self.frame + num_steps
        return float(num_steps)

    def observations(self) -> dict:
        assert self.is_running(), "there are none after the end of an episode"
        shape = int(self.config["height"]), int(self.config["width"]), 3
        image = np.full(shape, (self.seed % 256, self.frame, self.action[0] % 256), np.uint8)
        values = {"RGB_INTERLEAVED": image, "INSTR": "Find the red hat"}
        return {name: values[name] for name in self.names}

    def close(self) -> None:
        self.is_open = False


ITEMS = ["air", "dirt", "log", "log2", "planks", "stick", "crafting_table", "wooden_pickaxe", "cobblestone"]
ITEMS += ["stone_pickaxe", "iron_ore", "furnace", "iron_ingot", "iron_pickaxe", "diamond"]


class World:
    """What `EnvSpec.make` of minerl returns: an environment of the old gym, with a world that the test writes."""

    def __init__(self, spec):
        self.spec = spec
        items = SimpleNamespace(spaces=dict.fromkeys(ITEMS))
        kind = SimpleNamespace(values=np.array([*ITEMS, "other"]))
        mainhand = SimpleNamespace(spaces={"type": kind})
        spaces = {"inventory": items, "equipped_items": SimpleNamespace(spaces={"mainhand": mainhand})}
        self.observation_space = SimpleNamespace(spaces=spaces)
        self.actions: list[dict] = []
        self.seeds: list[int] = []
        self.script: list[dict] = []  # changes of the observation, one each step
        self._seed: int | None = None
        self._now: dict = {}

    def seed(self, seed=None, seed_spaces=True) -> None:
        self._seed = seed

    def reset(self) -> dict:
        assert self._seed is not None
        self.seeds.append(self._seed)
        self._seed = None  # as the package does
        self._now = {"items": dict.fromkeys(ITEMS, 0), "life": 20.0, "height": 64.0, "mainhand": "air"}
        return self._obs()

    def step(self, action: dict) -> tuple[dict, float, bool, dict]:
        keys = {"forward", "back", "left", "right", "jump", "sneak", "sprint", "attack", "camera"}
        assert action.keys() == keys | {"place", "equip", "craft", "nearbyCraft", "nearbySmelt"}
        self.actions.append(action)
        change = self.script.pop(0) if self.script else {}
        self._now["items"] |= change.get("items", {})
        self._now |= {key: value for key, value in change.items() if key != "items"}
        return self._obs(), 0.0, change.get("done", False), change.get("info", {})

    def close(self) -> None:
        pass

    def _obs(self) -> dict:
        size = self.spec.resolution[0]
        return {
            "pov": np.full((size, size, 3), len(self.actions) % 256, np.uint8),
            "inventory": {name: np.array(count) for name, count in self._now["items"].items()},
            "equipped_items": {"mainhand": {"type": self._now["mainhand"]}},
            "life_stats": {"life": np.array(self._now["life"]), "food": np.array(20), "air": np.array(300)},
            "location_stats": {"ypos": np.array(self._now["height"])},
        }


class Handler:
    """Any handler of minerl, which only keeps what it was made with."""

    def __init__(self, *args, **options):
        self.args, self.options = args, options


class SimpleEmbodimentEnvSpec:
    def __init__(self, name, *args, resolution=(64, 64), **kwargs):
        self.name, self.resolution = name, resolution

    def create_observables(self) -> list:
        return [Handler("pov")]

    def create_actionables(self) -> list:
        return [Handler("keys")]

    def make(self, fake=False) -> World:
        # The package asks for all of these to write the mission.
        self.start = self.create_agent_start()
        for part in ("observables", "actionables", "rewardables", "agent_handlers", "server_initial_conditions"):
            assert isinstance(getattr(self, f"create_{part}")(), list)
        for part in ("server_decorators", "server_world_generators", "server_quit_producers"):
            assert isinstance(getattr(self, f"create_{part}")(), list)
        assert self.get_docstring() and not self.is_from_folder("x") and not self.determine_success_from_rewards([])
        return World(self)


HANDLERS = (
    *("FlatInventoryObservation", "EquippedItemObservation", "ObservationFromLifeStats"),
    *("ObservationFromCurrentLocation", "PlaceBlock", "EquipAction", "CraftAction", "CraftNearbyAction"),
    *("SmeltItemNearby", "DefaultWorldGenerator", "ServerQuitWhenAnyAgentFinishes", "TimeInitialCondition"),
    "SpawningInitialCondition",
)


def install_minerl(monkeypatch: pytest.MonkeyPatch) -> None:
    """minerl 0.4.4, as far as its documentation tells of custom environments."""
    monkeypatch.delitem(sys.modules, "dreamfleet.envs.suites.minecraft_spec", raising=False)
    for name in ("minerl", "minerl.herobraine", "minerl.herobraine.env_specs", "minerl.herobraine.hero"):
        install(monkeypatch, name)
    embodiment = "minerl.herobraine.env_specs.simple_embodiment"
    install(monkeypatch, embodiment, SimpleEmbodimentEnvSpec=SimpleEmbodimentEnvSpec)
    install(monkeypatch, "minerl.herobraine.hero.mc", ALL_ITEMS=ITEMS)
    kinds = {name: type(name, (Handler,), {}) for name in HANDLERS}
    install(monkeypatch, "minerl.herobraine.hero.handlers", **kinds)
    install(monkeypatch, "minerl.herobraine.hero.handlers.agent")
    install(monkeypatch, "minerl.herobraine.hero.handlers.agent.start", AgentStartBreakSpeedMultiplier=Handler)


def install_lab(monkeypatch: pytest.MonkeyPatch) -> list[Lab]:
    """deepmind_lab; returns the list of those that are made."""
    monkeypatch.delitem(sys.modules, "dreamfleet.envs.suites.dmlab", raising=False)
    monkeypatch.setattr(Lab, "made", [])
    install(monkeypatch, "deepmind_lab", Lab=Lab)
    return Lab.made
