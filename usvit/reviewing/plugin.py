"""What the review of cases adds to usvit."""

from usvit.plugins import CommandEntry, Plugin

PLUGIN = Plugin(
    commands={
        "review": CommandEntry(
            "usvit.reviewing.cli.review",
            "app",
            "Read cases in a browser, blinded or with the model, as a reader study.",
        ),
    },
    panel="Scoring and reading",
    records="usvit.reviewing.records",
)
