"""Process untrusted files in worker processes with limits on time and memory."""

from usvit.limited.calls import LimitedCalls, LimitReached
from usvit.limited.worker import hidden_main_script
from usvit.limited.worker_process import exit_with_parent

__all__ = ["LimitReached", "LimitedCalls", "exit_with_parent", "hidden_main_script"]
