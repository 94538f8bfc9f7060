"""Send many studies through `usvit node serve` to Orthanc, and count what is in each study at the end.

    python -m benchmarks.node_flow --model runs/x [--studies 50] [--images 20] [--associations 4] [--size 300]

dcmtk's storescu sends the images on several associations at once; Orthanc gets one report for each study, and a
Secondary Capture and a presentation state for each scored image. The benchmark prints the counts, the times, and what
dciodvfy and dsrdump say of the objects. The exit code is 1 if a count is wrong or an object has an error.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.data.conftest import speckle, write_dicom
from tests.node.images import ROOT, RunningNode, serving, settings, storescu
from tests.programs import Orthanc, orthanc_server, tool

MODALITIES = {"SR": "sr", "OT": "sc", "PR": "gsps"}


def write_studies(folder: Path, studies: int, count: int, size: int, parts: int) -> list[Path]:
    """Write the images into one folder for each association."""
    for study in range(studies):
        for number in range(count):
            write_dicom(
                folder / f"part-{study % parts}" / f"{study}-{number}.dcm",
                speckle(1000 * study + number, size, size),
                PatientName="Doe^Jane",
                PatientID=f"MRN-{study}",
                StudyDescription="breast",
                StudyInstanceUID=f"{ROOT}.{study}",
                SeriesInstanceUID=f"{ROOT}.{study}.1",
                SOPInstanceUID=f"{ROOT}.{study}.1.{number}",
            )
    return sorted(folder.iterdir())


def at_orthanc(orthanc: Orthanc) -> dict[str, Counter[str]]:
    """Study UID -> number of objects by kind."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for study in orthanc.call("/studies?expand"):
        for series in study["Series"]:
            described = orthanc.call(f"/series/{series}")
            kind = MODALITIES.get(described["MainDicomTags"]["Modality"], "other")
            found[study["MainDicomTags"]["StudyInstanceUID"]][kind] += len(described["Instances"])
    return found


def errors_of_objects(node: RunningNode) -> Counter[str]:
    """Count the objects of which dciodvfy or dsrdump reports an error."""
    found: Counter[str] = Counter()
    for row in node.database.rows("SELECT kind, path FROM results"):
        path = str(node.config.folder / row["path"])
        said = subprocess.run([tool("dciodvfy"), path], capture_output=True, text=True)
        found[f"{row['kind']} checked by dciodvfy"] += 1
        found[f"{row['kind']} with an error of dciodvfy"] += "Error" in said.stderr
        if row["kind"] == "sr":
            found["sr that dsrdump cannot read"] += (
                subprocess.run([tool("dsrdump"), path], capture_output=True).returncode != 0
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--studies", type=int, default=50)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--associations", type=int, default=4)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--patience", type=float, default=3600.0)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = write_studies(folder / "in", told.studies, told.images, told.size, told.associations)
        (folder / "orthanc").mkdir()
        with orthanc_server(folder / "orthanc") as orthanc:
            content = settings(
                folder,
                models={"main": {"path": str(Path(told.model).absolute()), "device": "cpu"}},
                peers={"pacs": {"ae_title": "ORTHANC", "host": "127.0.0.1", "port": orthanc.dicom}},
                rules=[{"name": "all", "model": "main", "outputs": ["sr", "sc", "gsps"], "send_to": ["pacs"]}],
                studies={"quiet_seconds": 5.0},
            )
            with serving(folder, content) as node:
                began = time.monotonic()
                with ThreadPoolExecutor(len(parts)) as pool:
                    answers = list(pool.map(lambda part: storescu(node.port, part), parts))
                received = time.monotonic() - began
                acknowledged = sum(answer.stdout.count("Store Response (Success)") for answer in answers)
                node.wait_for(
                    "SELECT count(*) = ? FROM studies WHERE state = 'done'", told.studies, seconds=told.patience
                )
                scored = time.monotonic() - began
                node.wait_for(
                    "SELECT NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 'waiting')", seconds=told.patience
                )
                sent = time.monotonic() - began
                states = Counter(row[0] for row in node.database.rows("SELECT state FROM instances"))
                results = Counter(row[0] for row in node.database.rows("SELECT kind FROM results"))
                revisions = node.database.one("SELECT max(revision) FROM studies")
                found, errors = at_orthanc(orthanc), errors_of_objects(node)
    expected = Counter(sr=1, sc=told.images, gsps=told.images)
    whole = sum(counts == expected for counts in found.values())
    total = told.studies * told.images
    print(f"{acknowledged} of {total} images acknowledged in {received:.1f} s ({acknowledged / received:.1f} a second)")
    print(f"states: {dict(states)}; results: {dict(results)}")
    print(f"highest revision of a study: {revisions[0] if revisions else 0}")
    print(f"all scored after {scored:.1f} s, all sent after {sent:.1f} s")
    print(f"Orthanc holds {len(found)} studies; {whole} of them hold exactly {dict(expected)}")
    for what, number in sorted(errors.items()):
        print(f"{number:8}  {what}")
    bad = sum(number for what, number in errors.items() if "checked" not in what)
    return 0 if acknowledged == total == states["scored"] and whole == told.studies and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
