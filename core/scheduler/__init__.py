"""The scheduler: which sequences compute how many tokens in a step. Never imports torch."""

from core.scheduler.output import ScheduledSequence, SchedulerOutput
from core.scheduler.scheduler import Scheduler

__all__ = ["ScheduledSequence", "Scheduler", "SchedulerOutput"]
