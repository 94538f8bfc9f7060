"""STUB until the branch of the command is merged."""

from usvit.config.pretrain import SourceConfig, UpstreamModelConfig, ViewsConfig
from usvit.config.run import Training


class TestConfig(Training):
    source: SourceConfig = SourceConfig()
    views: ViewsConfig = ViewsConfig()
    model: UpstreamModelConfig = UpstreamModelConfig()
    head: str = "joint"
    upstream: tuple[str, ...] = ()
