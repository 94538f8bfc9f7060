"""First import of the fork server: it keeps libraries from starting threads, since a fork does not copy threads.

The server then imports the reading modules, so that forked workers start in a tenth of a second.
"""

import os

from usvit.limited.worker_process import ONE_THREAD

os.environ.update(ONE_THREAD)

import cv2

cv2.setNumThreads(1)
