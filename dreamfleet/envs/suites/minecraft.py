"""Minecraft through the package minerl 0.4.4: collect wood, climb, or get a diamond."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import elements
import numpy as np

from dreamfleet.base.keys import LOG_PREFIX
from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES, Env, Obs
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.wrappers import TimeLimit
from dreamfleet.options.env import MinecraftOptions

TURN = 15  # degrees
MOST_PITCH = 60  # degrees up or down
STICKY_ATTACK, STICKY_JUMP = 30, 10  # steps that these go on; blocks that break at once need no sticky attack
KEYS = ("forward", "back", "left", "right", "jump", "sneak", "sprint", "attack")
ITEM_KEYS = ("place", "equip", "craft", "nearbyCraft", "nearbySmelt")
NOOP = {**dict.fromkeys(KEYS, 0), **dict.fromkeys(ITEM_KEYS, "none"), "camera": (0, 0)}

BASIC = [
    {},
    {"attack": 1},
    *({"camera": camera} for camera in ((-TURN, 0), (TURN, 0), (0, -TURN), (0, TURN))),
    *({key: 1} for key in ("forward", "back", "left", "right")),
    {"jump": 1, "forward": 1},
    {"place": "dirt"},
]
TOOLS = ("wooden_pickaxe", "stone_pickaxe", "iron_pickaxe")
CRAFTING = [
    *({"craft": item} for item in ("planks", "stick", "crafting_table")),
    *({"place": item} for item in ("crafting_table", "furnace")),
    *({"nearbyCraft": item} for item in (*TOOLS, "furnace")),
    *({"equip": item} for item in TOOLS),
    {"nearbySmelt": "iron_ingot"},
]
# In the order in which they are needed; each is rewarded once in an episode.
MILESTONES = (
    *("log", "planks", "stick", "crafting_table", "wooden_pickaxe", "cobblestone", "stone_pickaxe"),
    *("iron_ore", "furnace", "iron_ingot", "iron_pickaxe", "diamond"),
)
LOGGED = ("log", "cobblestone", "iron_ingot", "diamond")
HEALTH_SCALE = 0.01  # of the reward for health, which is in [0, 1]

_starting = threading.Lock()  # of the game, which looks for a free port


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, TASKS)


def make_minecraft(name: str, seed: int, options: MinecraftOptions) -> Env:
    """`wood` rewards logs, `climb` height, and `diamond` each of the twelve things on the way to one, once."""
    check("minecraft", name)
    actions, rate = TASKS[name]
    return TimeLimit(Minecraft(_start(options), seed, actions, rate, options), options.length)


def _start(options: MinecraftOptions) -> Any:
    for alias, kind in {"float": float, "int": int, "bool": bool}.items():  # names that minerl uses and NumPy dropped
        if alias not in vars(np):
            setattr(np, alias, kind)
    from dreamfleet.envs.suites.minecraft_spec import World

    with _starting:
        return World(options.size, options.break_speed).make()


class State:
    """What the rewards are made of."""

    def __init__(self, obs: Mapping[str, Any]):
        self.items = {name: float(count) for name, count in obs["inventory"].items()}
        self.items["log"] = self.items.get("log", 0.0) + self.items.pop("log2", 0.0)  # two kinds of wood
        self.health = float(obs["life_stats"]["life"]) / 20
        self.height = float(obs["location_stats"]["ypos"])


Rate = Callable[[State, State, Mapping[str, float]], float]  # from two states and the most there was of each item


def _rate_wood(before: State, after: State, most: Mapping[str, float]) -> float:
    return max(0.0, after.items["log"] - before.items["log"])


def _rate_climb(before: State, after: State, most: Mapping[str, float]) -> float:
    return after.height - before.height


def _rate_diamond(before: State, after: State, most: Mapping[str, float]) -> float:
    return float(sum(not most[item] and after.items[item] > 0 for item in MILESTONES))


TASKS: dict[str, tuple[list[dict], Rate]] = {
    "wood": (BASIC, _rate_wood),
    "climb": (BASIC, _rate_climb),
    "diamond": ([*BASIC, *CRAFTING], _rate_diamond),
}


class Minecraft:
    """A world with one choice among whole actions; death ends the episode."""

    def __init__(self, world: Any, seed: int, actions: list[dict], rate: Rate, options: MinecraftOptions):
        self._world = world
        self._rng = np.random.default_rng(seed)
        self._actions = actions
        self._rate = rate
        self._has_sticky_attack = options.break_speed == 1
        self._state: State
        self._most: dict[str, float] = {}
        self._attacking = self._jumping = self._pitch = 0
        self._done = True
        spaces = world.observation_space.spaces
        self._items = [name for name in spaces["inventory"].spaces if name != "log2"]
        self._tools = [str(name) for name in spaces["equipped_items"].spaces["mainhand"].spaces["type"].values]
        self.obs_space = {
            "image": elements.Space(np.uint8, (options.size, options.size, 3)),
            "inventory": elements.Space(np.float32, (len(self._items),), 0),
            "inventory_max": elements.Space(np.float32, (len(self._items),), 0),
            "equipped": elements.Space(np.int32, (), 0, len(self._tools)),
            **{key: elements.Space(np.float32) for key in ("health", "hunger", "breath")},
            **{f"{LOG_PREFIX}{item}": elements.Space(np.float32) for item in LOGGED},
            **STEP_SPACES,
        }
        self.act_space = {"action": elements.Space(np.int32, (), 0, len(actions)), "reset": RESET_SPACE}

    def step(self, action: dict) -> Obs:
        if self._done or action["reset"]:
            return self._begin()
        obs, _, done, info = self._world.step(self._prolong({**NOOP, **self._actions[action["action"]]}))
        before, self._state = self._state, State(obs)
        reward = self._rate(before, self._state, self._most)
        reward += HEALTH_SCALE * (self._state.health - before.health)
        self._note_most()
        self._done = bool(done)
        # A game that crashed says so and ends: nobody has died.
        return self._obs(obs, reward, is_last=self._done, is_terminal=self._done and "error" not in (info or {}))

    def close(self) -> None:
        self._world.close()

    def _begin(self) -> Obs:
        with _starting:
            self._world.seed(int(self._rng.integers(2**31)))  # which holds for one reset
            obs = self._world.reset()
        self._attacking = self._jumping = self._pitch = 0
        self._state, self._done = State(obs), False
        self._most = dict.fromkeys(self._state.items, 0.0)
        self._note_most()
        return self._obs(obs, 0.0, is_first=True)

    def _note_most(self) -> None:
        self._most = {item: max(most, self._state.items[item]) for item, most in self._most.items()}

    def _prolong(self, action: dict) -> dict:
        """Lets attacks and jumps go on for a while, and keeps the view from turning over."""
        if action["attack"] and self._has_sticky_attack:
            self._attacking = STICKY_ATTACK
        if action["jump"]:
            self._jumping = STICKY_JUMP
        if self._attacking:
            self._attacking -= 1
            action |= {"attack": 1, "jump": 0}
        if self._jumping:
            self._jumping -= 1
            action |= {"jump": 1, "forward": 1}
        pitch, yaw = action["camera"]
        if abs(self._pitch + pitch) > MOST_PITCH:
            pitch = 0
        self._pitch += pitch
        return {**action, "camera": (pitch, yaw)}

    def _obs(self, obs: Mapping[str, Any], reward: float, is_first=False, is_last=False, is_terminal=False) -> Obs:
        life, state = obs["life_stats"], self._state
        return {
            "image": np.asarray(obs["pov"], np.uint8),
            "inventory": np.array([state.items[item] for item in self._items], np.float32),
            "inventory_max": np.array([self._most[item] for item in self._items], np.float32),
            "equipped": np.int32(self._tools.index(str(obs["equipped_items"]["mainhand"]["type"]))),
            "health": np.float32(state.health),
            "hunger": np.float32(life["food"] / 20),
            "breath": np.float32(life["air"] / 300),
            **{f"{LOG_PREFIX}{item}": np.float32(state.items[item]) for item in LOGGED},
            "reward": np.float32(reward),
            "is_first": is_first,
            "is_last": is_last,
            "is_terminal": is_terminal,
        }
