"""Near-duplicates: one frame stored again, cropped, on a canvas, turned, mirrored, inverted or annotated.

They are found in three steps: each image is described by its landmarks (``description``), pairs with equal hashes are
candidates (``candidates``), and each candidate is verified by aligning the two images (``verification``).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
