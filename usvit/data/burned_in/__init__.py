"""Detect words and calipers that are burned into images."""

from .marks import Look as Look
from .marks import components as components
from .marks import has_calipers as has_calipers
from .marks import has_text as has_text
from .marks import mark_boxes as mark_boxes
from .text import may_show_words as may_show_words
