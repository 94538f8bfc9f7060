"""What the DICOM service adds to usvit."""

from usvit.plugins import CommandEntry, Plugin

PLUGIN = Plugin(
    commands={
        "node": CommandEntry(
            "usvit.node.cli.node", "app", "A DICOM service that scores studies and sends the results back."
        ),
        "dicom": CommandEntry("usvit.node.cli.dicom", "app", "Send DICOM files to archives."),
    },
    panel="Operation beside an archive",
    records="usvit.node.records",
)
