# The values of a Config are only known at run time; what the library infers for them is wrong.
from typing import Any, Self

class Config(dict[str, Any]):
    @property
    def flat(self) -> dict[str, Any]: ...
    def __getattr__(self, name: str) -> Any: ...
    def update(self, *args: Any, **kwargs: Any) -> Self: ...  # type: ignore[override]

def __getattr__(name: str) -> Any: ...
