"""The mazes of LocoNav and what is rewarded in them; imported once a renderer was chosen."""

import colorsys
import itertools
from typing import Any

import labmaze
import numpy as np
from dm_control import mjcf
from dm_control.locomotion.arenas.labmaze_textures import WallTextures
from dm_control.locomotion.arenas.mazes import MazeWithTargets
from dm_control.locomotion.props.target_sphere import TargetSphere
from dm_control.locomotion.tasks.random_goal_maze import NullGoalMaze, RepeatSingleGoalMaze
from dm_control.locomotion.walkers.ant import Ant

# Corners (column, row) of the way from start to goal, in rooms of three by three cells, and dead ends beside it.
WAYS = {
    "maze_s": [[(0, 1), (1, 1), (1, 0)]],
    "maze_m": [[(0, 2), (2, 2), (2, 0), (0, 0)]],
    "maze_l": [[(0, 3), (3, 3), (3, 1), (1, 1), (1, 0)], [(0, 3), (0, 2)], [(3, 1), (3, 0), (2, 0)]],
    "maze_xl": [[(0, 3), (1, 3), (1, 1), (3, 1), (3, 0), (0, 0)], [(0, 3), (0, 2)], [(1, 3), (3, 3), (3, 2)]],
    "maze_xxl": [
        [(0, 4), (4, 4), (4, 2), (1, 2), (1, 0), (4, 0)],
        [(2, 4), (2, 3)],
        [(1, 2), (0, 2), (0, 0)],
        [(3, 2), (3, 1)],
    ],
}
EMPTY_SIDE = 4  # rooms, without walls between them
PITCH = 4  # cells from one room to the next, of which one is the wall between them
SPAWN, GOAL, FREE, WALLS = "P", "G", " ", "123456789"
CELL_M, WALL_M, GOAL_M = 1.2, 2.0, 1.2  # width of a cell, height of a wall, radius of the goal
CONTROL_HZ, SUBSTEPS = 50, 4
REPEATS = 1000  # as many as anybody could manage in the time


class StayAtGoal(RepeatSingleGoalMaze):
    """Rewards every step once the goal was reached, instead of ending the episode there."""

    def after_step(self, physics: Any, random_state: np.random.RandomState) -> None:
        NullGoalMaze.after_step(self, physics, random_state)
        self._rewarded_this_step = self._target.activated


class Paint(WallTextures):
    """One colour in place of pictures, another for each mark of a wall."""

    def _build(self, style: str) -> None:
        hue = WALLS.index(style) / len(WALLS)
        root: Any = mjcf.RootElement(model=f"paint_{style}")
        flat = {"type": "2d", "builtin": "flat", "width": 16, "height": 16}
        self._mjcf_root = root
        self._textures = [root.asset.add("texture", name="paint", rgb1=colorsys.hsv_to_rgb(hue, 0.7, 0.85), **flat)]


def make_task(maze: str, seed: int, is_again: bool, is_mortal: bool) -> tuple[Any, Any]:
    """The task of a maze and its walker; `is_again` brings it back to the start whenever it has reached the goal."""
    walker: Any = Ant()
    task = (RepeatSingleGoalMaze if is_again else StayAtGoal)(
        walker,
        make_arena(maze, seed),
        target=TargetSphere(radius=GOAL_M, height_above_ground=0.0),
        max_repeats=REPEATS,
        aliveness_threshold=-0.5 if is_mortal else -1.0,
        contact_termination=False,
        physics_timestep=1 / CONTROL_HZ / SUBSTEPS,
        control_timestep=1 / CONTROL_HZ,
    )
    walker.observables.egocentric_camera.enabled = False  # it is drawn in the size that is asked for
    return task, walker


def make_arena(maze: str, seed: int) -> Any:
    """The maze, each part of whose walls has a colour of its own."""
    random_state = np.random.RandomState((seed + 1) % 2**32)
    rooms = labmaze.FixedMazeWithRandomGoals(draw(maze), num_spawns=1, num_objects=1, random_state=random_state)
    paints = {mark: Paint(mark) for mark in WALLS}
    return MazeWithTargets(rooms, xy_scale=CELL_M, z_height=WALL_M, wall_textures=paints)


def draw(maze: str) -> str:
    """The maze as lines of text, with a mark for each cell."""
    ways = WAYS.get(maze, [])
    side = 1 + max([*itertools.chain(*itertools.chain(*ways)), EMPTY_SIDE - 1 if not ways else 0])
    rows, columns = np.indices((PITCH * side + 1, PITCH * side + 1))
    cells = np.array(list(WALLS))[(columns // PITCH + 3 * (rows // PITCH)) % len(WALLS)]
    if not ways:
        cells[1:-1, 1:-1] = FREE
    for way in ways:
        for start, end in itertools.pairwise(way):
            (left, right), (top, bottom) = (sorted(pair) for pair in zip(start, end, strict=True))
            cells[PITCH * top + 1 : PITCH * bottom + PITCH, PITCH * left + 1 : PITCH * right + PITCH] = FREE
    for (column, row), mark in zip([ways[0][0], ways[0][-1]] if ways else [], (SPAWN, GOAL), strict=False):
        cells[PITCH * row + 2, PITCH * column + 2] = mark
    return "".join("".join(line) + "\n" for line in cells)
