"""Watching a model in use: its scores, images, failures and decisions over time, with a stated rate of false alarms.

``sources`` reads what ``usvit score`` or a node wrote, ``charts`` divides it into periods, devices and sites and tests
them, ``acceptance`` tests labelled local cases, ``rules`` gives the verdict, and ``document`` says it. The statistics
are in ``usvit.metrics.control_charts``.
"""

from .api import watch as watch
from .document import watch_document as watch_document
