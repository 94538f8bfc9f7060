"""usvit: classification of breast-ultrasound images that can be trusted. For research use, not a medical device."""

__version__ = "0.1.0"
