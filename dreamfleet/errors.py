"""Every error that a user or a peer can cause, in one tree.

DreamfleetError
├── ConfigError          an option is wrong: key, value, reason, remedy
│   └── UnknownOption    there is no such option
├── EnvError             an environment broke its contract
├── AgentError           an agent broke its contract
├── ReplayError          a replay was asked for what it cannot give or hold
│   ├── NoSpace          its disk is full; the same rows can be added once there is space again
│   └── NeedsRows        a stream looked at rows where it had references to them; it gets rows instead
├── CheckpointError      a checkpoint cannot be written or read
│   └── NotSaved         the last checkpoint of a run could not be written; ends the run
├── NonFiniteLoss        a loss became NaN or infinite; ends the run
├── RunFailed            a role spent its restart budget; carries the first cause
│   └── RunRefused       a role could not start with its settings, as its ConfigError says
└── RpcError             something between two processes
    ├── BadRequest       the other side sent what this side refuses
    │   └── Refused      the other side does not serve this process at all, and will not later
    ├── RunOver          the run that the other side belongs to is complete
    ├── RemoteError      the handler on the other side raised; carries its role, method and traceback
    ├── Disconnected     the other side was lost while a call was in flight
    ├── ReplicaLost      another replica of the gang was lost; this one starts again with it
    ├── Unreachable      nobody was there for as long as this side may wait
    ├── DeadlineExceeded a call waited longer than allowed; says for whom and for what
    └── Closed           this side was closed while a call was waiting
"""

from typing import Any


class DreamfleetError(Exception):
    """Root of all errors that Dreamfleet raises on purpose.

    `is_fatal` errors end the run: the role that raised one would only fail again if it were restarted.
    """

    is_fatal = False


class ConfigError(DreamfleetError):
    """An option that cannot work, told as `key=value reason; remedy`."""

    def __init__(self, key: str, value: object, reason: str, remedy: str):
        super().__init__(f"{key}={value!r} {reason}; {remedy}")
        self.key, self.value, self.reason, self.remedy = key, value, reason, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.value, self.reason, self.remedy)


class UnknownOption(ConfigError):
    """An option that does not exist, told as `unknown option key; remedy`."""

    def __init__(self, key: str, value: object, remedy: str):
        super().__init__(key, value, "is unknown", remedy)
        self.args = (f"unknown option {key}; {remedy}",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.value, self.remedy)


class EnvError(DreamfleetError):
    """An environment that does not keep its contract."""


class AgentError(DreamfleetError):
    """An agent that does not keep its contract."""


class ReplayError(DreamfleetError):
    """Data that a replay refuses, or a request that it cannot serve."""


class NoSpace(ReplayError):
    """A replay has no room for more rows at the moment; nothing was changed."""


class NeedsRows(ReplayError):
    """A stream asked references for more than step ids; the same stream works on rows."""


class CheckpointError(DreamfleetError):
    """A checkpoint that cannot be written or read."""


class NotSaved(CheckpointError):
    """The last checkpoint of a run could not be written; says why, and which is the newest."""

    is_fatal = True


class NonFiniteLoss(DreamfleetError):
    """A loss became NaN or infinite; the checkpoints written before it are good."""

    is_fatal = True


class RunFailed(DreamfleetError):
    """A role failed for good; the message is the first cause with its traceback."""


class RunRefused(RunFailed):
    """A role found a setting that cannot work before it ever ran."""


class RpcError(DreamfleetError):
    """Root of the errors between two processes."""


class BadRequest(RpcError):
    """The peer sent something that is refused: the request was not carried out."""


class Refused(BadRequest):
    """The peer serves others, but not this process: to ask again would not help."""

    is_fatal = True


class RunOver(RpcError):
    """The run is complete: there is nothing left to do for it."""


class RemoteError(RpcError):
    """The handler on the other side raised; `traceback` is the original one."""

    def __init__(self, role: str, method: str, summary: str, traceback: str = ""):
        message = f"{role}.{method} failed: {summary}"
        if traceback:
            message += f"\n--- traceback in {role} ---\n{traceback}"
        super().__init__(message)
        self.role, self.method, self.summary, self.traceback = role, method, summary, traceback

    def __reduce__(self):
        return type(self), (self.role, self.method, self.summary, self.traceback)


class Disconnected(RpcError):
    """The peer was lost while the call was in flight: it may or may not have been carried out."""


class ReplicaLost(RpcError):
    """A replica that updates are made with is gone: nothing is wrong with this process, but it cannot go on either."""

    is_own_fault = False  # does not count as a death of the role


class Unreachable(RpcError):
    """The peer was away for longer than this process waits for it."""

    is_fatal = True


class DeadlineExceeded(RpcError):
    """A wait was longer than its deadline."""


class Closed(RpcError):
    """The local endpoint was closed while the call was waiting."""
