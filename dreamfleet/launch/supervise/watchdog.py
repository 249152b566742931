"""What helps against a process whose GIL is never released, where no Python code runs. Used by child and supervisor."""

import ctypes
import faulthandler
import signal

PR_SET_PDEATHSIG = 1
PARENT_DIED = signal.SIGSTKFLT  # nothing else uses it; its number, 16, is the time that remains then, in seconds
SHOW_STACKS = signal.SIGRTMAX


def end_with_parent() -> None:
    """Has the kernel end this process some time after its parent has died, if it has not ended by itself.

    The kernel sends a signal when the thread that started this process ends, which the supervisor's does only after its
    children. The handler is the C function `alarm`, called with the number of the signal; the alarm is deadly.
    """
    libc = ctypes.CDLL(None)
    libc.signal(PARENT_DIED, libc.alarm)
    libc.prctl(PR_SET_PDEATHSIG, PARENT_DIED)


def show_stacks_on_signal() -> None:
    """Has SHOW_STACKS write the stacks of all threads to the log.

    They are read without the GIL. Where other threads run in that moment, this may crash the process: the signal is
    only for one that is about to be killed.
    """
    faulthandler.register(SHOW_STACKS, file=2)
