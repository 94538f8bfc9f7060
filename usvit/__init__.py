"""usvit: train and evaluate classifiers of breast-ultrasound images. For research use, not a medical device.

The functions of this package are the public interface; ``__init__.pyi`` lists them for editors. A name is imported when
it is first used, so that ``import usvit`` loads neither PyTorch nor pandas.
"""

import lazy_loader as lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
