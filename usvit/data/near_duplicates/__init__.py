"""Near-duplicates: one frame stored again, cropped, on a canvas, turned, mirrored, inverted or annotated.

They are found in three steps: each image is described by its landmarks (``description``), pairs with equal hashes are
candidates (``candidates``), and each candidate is verified by aligning the two images (``verification``).
"""

from .compact import CompactDescriptions as CompactDescriptions
from .compact import SeenNearDuplicate as SeenNearDuplicate
from .compact import find_seen_near_duplicates as find_seen_near_duplicates
from .description import Description as Description
from .description import describe as describe
from .search import ENOUGH_NEAR_DUPLICATES as ENOUGH_NEAR_DUPLICATES
from .search import MIN_LANDMARKS as MIN_LANDMARKS
from .search import MIN_SIMILARITY as MIN_SIMILARITY
from .search import NearDuplicate as NearDuplicate
from .search import clusters as clusters
from .search import find_near_duplicates as find_near_duplicates
from .search import find_near_duplicates_between as find_near_duplicates_between
