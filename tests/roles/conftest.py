"""A replay role on stores, opened again as after a kill."""

import pytest

from dreamfleet.options import read_args
from dreamfleet.replay import Store
from dreamfleet.roles.replay.role import ReplayRole
from tests.fleet import make_args
from tests.roles.replays import LENGTH, make_stream


@pytest.fixture
def open_role(tmp_path):
    """Opens a role on the stores of the test's directory; the one before is dropped as a kill would."""
    roles = []

    def drop():
        if roles:
            for mode in ("train", "eval"):
                store = roles[-1]._own[mode].replay
                store._closing.set()
                if store._rows:
                    store._rows.pool._worker.shutdown()
                store._files.close()
            roles[-1]._file.close()

    def make(storage="disk", stream=make_stream, **options):
        drop()
        directories = {mode: tmp_path / "replay" / mode if storage == "disk" else None for mode in ("train", "eval")}
        stores = [Store(LENGTH, 1000, directory=path, sync_every=0.0) for path in directories.values()]
        roles.append(ReplayRole(*stores, stream, read_args(make_args(tmp_path, train_ratio=0.0, **options))))
        return roles[-1]

    yield make
    drop()
