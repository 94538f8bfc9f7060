"""usvit: train and evaluate classifiers of breast-ultrasound images. For research use, not a medical device.

The functions of this package are the public interface; ``__init__.pyi`` lists them for editors. A name is imported when
it is first used, so that ``import usvit`` loads neither PyTorch nor pandas.
"""

from functools import cache

__version__ = "0.1.0"


@cache
def _public():
    """Return lazy-loader's ``__getattr__``, ``__dir__`` and ``__all__`` of ``__init__.pyi``.

    The command line reads none of them, and reading the file would delay ``usvit --help``.
    """
    import lazy_loader

    return lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    return _public()[2] if name == "__all__" else _public()[0](name)


def __dir__():
    return _public()[1]()
