"""The file of a node's configuration."""

from pathlib import Path

from usvit.config.settings_file import load_settings_file
from usvit.node.config.settings import NodeConfig


def load_node_config(path: Path | str) -> NodeConfig:
    """Read and check the configuration of a node.

    Raises:
        UsvitError: The file cannot be read, is not YAML, or a setting is unknown or wrong; the text names it.
    """
    documentation = "All settings: 'usvit docs node-configuration'."
    return load_settings_file(path, NodeConfig, "configuration", documentation, named=("models", "peers"))
