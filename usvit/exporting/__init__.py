"""Export of a network for use elsewhere: safetensors, ONNX, or a MONAI bundle."""

from .exportable import open_source as open_source
from .exporter import FORMATS as FORMATS
from .exporter import Exported as Exported
from .exporter import export as export
from .exporter import write_export as write_export
from .model_card import model_card as model_card
