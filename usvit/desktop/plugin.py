"""What the start without a shell adds to usvit."""

from usvit.plugins import CommandEntry, Plugin

PLUGIN = Plugin(
    commands={
        "app": CommandEntry(
            "usvit.desktop.cli.app",
            "app",
            "Open a page in which images are scored, read and tested, until it is closed there or by Ctrl-C.",
        ),
    },
    panel="Scoring and reading",
)
