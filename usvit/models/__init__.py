"""Networks: names and specifications (``zoo``), code (``architectures``), weights, adaptation and prediction.

>>> import usvit.models
>>> usvit.models.list_models("deit_??", family="deit")
['deit_ti']
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
