"""Imported first by the fork server: its libraries get no threads of their own, since a fork copies none.

The reading modules come next; workers that are forked find them in memory, and start in a tenth of a second.
"""

import os

from usvit.limited.child import ONE_THREAD

os.environ.update(ONE_THREAD)

import cv2

cv2.setNumThreads(1)
