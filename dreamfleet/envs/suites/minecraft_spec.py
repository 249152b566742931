"""The Minecraft that the tasks are played in, as the package minerl is told of it."""

from typing import Any

from minerl.herobraine.env_specs.simple_embodiment import (  # pyright: ignore[reportMissingImports] (see the registry)
    SimpleEmbodimentEnvSpec,
)
from minerl.herobraine.hero import handlers, mc  # pyright: ignore[reportMissingImports]
from minerl.herobraine.hero.handlers.agent.start import (  # pyright: ignore[reportMissingImports]
    AgentStartBreakSpeedMultiplier,
)

NOTHING = "none"  # to craft, place, ...


class World(SimpleEmbodimentEnvSpec):
    """A new world in each episode, which has no goal of its own."""

    def __init__(self, size: int, break_speed: float):
        self._break_speed = break_speed
        super().__init__("DreamfleetMinecraft-v0", resolution=(size, size))

    def create_observables(self) -> list[Any]:
        return [
            *super().create_observables(),
            handlers.FlatInventoryObservation(mc.ALL_ITEMS),
            handlers.EquippedItemObservation(mc.ALL_ITEMS, _default="air", _other="other"),
            handlers.ObservationFromLifeStats(),
            handlers.ObservationFromCurrentLocation(),
        ]

    def create_actionables(self) -> list[Any]:
        things = [NOTHING, *mc.ALL_ITEMS]
        kinds = (
            handlers.PlaceBlock,
            handlers.EquipAction,
            handlers.CraftAction,
            handlers.CraftNearbyAction,
            handlers.SmeltItemNearby,
        )
        return [*super().create_actionables(), *(kind(things, _other=NOTHING, _default=NOTHING) for kind in kinds)]

    def create_agent_start(self) -> list[Any]:
        return [AgentStartBreakSpeedMultiplier(self._break_speed)]

    def create_server_world_generators(self) -> list[Any]:
        return [handlers.DefaultWorldGenerator(force_reset=True)]

    def create_server_quit_producers(self) -> list[Any]:
        return [handlers.ServerQuitWhenAnyAgentFinishes()]

    def create_server_initial_conditions(self) -> list[Any]:
        return [
            handlers.TimeInitialCondition(allow_passage_of_time=True, start_time=0),
            handlers.SpawningInitialCondition(allow_spawning=True),
        ]

    def create_rewardables(self) -> list[Any]:
        return []

    def create_agent_handlers(self) -> list[Any]:
        return []

    def create_server_decorators(self) -> list[Any]:
        return []

    def is_from_folder(self, folder: str) -> bool:
        return False

    def determine_success_from_rewards(self, rewards: list) -> bool:
        return False

    def get_docstring(self) -> str:
        return self.__doc__ or ""
