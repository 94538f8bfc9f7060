"""What the start without a shell adds to usvit."""

from usvit.plugins import CommandEntry, Plugin

PLUGIN = Plugin(
    commands={
        "app": CommandEntry(
            "usvit.desktop.cli.app",
            "app",
            "Open a page on this machine to score images, read them and test the scores, without a shell.",
        ),
    },
)
