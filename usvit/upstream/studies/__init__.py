"""Studies: a grid of runs in one YAML file, with one resumable state and one table, compared with that of a paper.

``specification`` is the schema of the file, ``plan`` expands it to runs, ``engines`` make them here or by Ray,
``execution`` runs the study, ``state`` keeps its progress, ``tables`` collects the results, and ``document`` shows
them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
