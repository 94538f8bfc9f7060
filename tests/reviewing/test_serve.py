"""``usvit review`` as a process: its link, its errors, and that no answer is lost when it is killed."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from collections import Counter

import pandas as pd
import pytest

from tests.reviewing.studies import RemoteReader, write_study
from usvit.errors import UsvitError
from usvit.reviewing import export_review, review_status
from usvit.reviewing.serve import ServeSettings, review


class Served:
    """The command in its own process, at one port; it can be killed and started again."""

    def __init__(self, study):
        self.study, self.port = study, free_port()
        self.process = None
        self.start()

    def start(self):
        command = [sys.executable, "-m", "usvit", "review", str(self.study), "--port", str(self.port), "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.link = re.search(r"http\S+", self.process.stdout.readline())[0]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(20) is not None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class ScriptedReader(threading.Thread):
    """Answers by a script, and asks again while the server is away; ``leaves`` after so many answers, in mid-case."""

    def __init__(self, link, name, script, leaves=None):
        super().__init__(daemon=True)
        self.link, self.reader, self.script, self.left = link, name, script, leaves

    def run(self):
        reader = self.tried(lambda: RemoteReader(self.link))
        while (task := self.tried(reader.state)["task"]) is not None:
            value = self.script(self.reader, task["number"])
            said = {"task": task["id"], "active_seconds": 0}
            self.tried(lambda: reader.post("answer", question="birads", value="4a", **said))  # noqa: B023
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    return
            self.tried(lambda: reader.post("answer", question="malignancy", value=value, **said))  # noqa: B023
            self.tried(lambda: reader.post("submit", **said))  # noqa: B023

    @staticmethod
    def tried(act):
        while True:
            try:
                return act()
            except urllib.error.HTTPError as error:
                if error.code != 409:  # it was finished before the answer came
                    raise
                return None
            except (OSError, http.client.HTTPException):  # it was killed, perhaps in the middle of an answer
                time.sleep(0.05)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.slow
def test_no_answer_is_lost_or_doubled_when_readers_leave_and_the_server_is_killed(tmp_path):
    n, names = 25, ("A", "B", "C")
    study = write_study(tmp_path, n=n, readers=[*names])

    def script(name, number):
        return (37 * number + 11 * names.index(name)) % 101

    with Served(study) as served:
        host = RemoteReader(served.link)
        links = {one["name"]: one["link"] for one in host.state()["readers"]}
        leaving = [ScriptedReader(links[name], name, script, leaves=5 + k) for k, name in enumerate(names)]
        for one in leaving:
            one.start()
        for one in leaving:
            one.join(60)
        readers = [ScriptedReader(links[name], name, script) for name in names]
        for one in readers:
            one.start()
        for at in (30, 50):
            while review_status(study).readers[0].done * 3 < at:
                time.sleep(0.02)
            served.kill()
            served.start()
        for one in readers:
            one.join(120)
            assert not one.is_alive()
    table = pd.read_csv(export_review(study).folder / "readings.csv")
    assert len(table) == n * len(names) and Counter(table.reader) == dict.fromkeys(names, n)
    assert table.answered_at.notna().all()
    expected = [script(row.reader, row.position) for row in table.itertuples()]
    assert table.malignancy.tolist() == expected


def test_a_port_in_use_and_a_second_server_are_one_sentence(tmp_path):
    study = write_study(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsvitError, match=rf"cannot be served at 127\.0\.0\.1:{port}: Address already in use"):
            review(study, port=port, browser=False)


def test_other_machines_need_https_and_a_name():
    for settings, said in (
        ({"host": "192.168.1.5"}, "needs HTTPS"),
        ({"host": "0.0.0.0", "certificate": "c.pem", "private_key": "k.pem"}, "give name as well"),
        ({"certificate": "c.pem"}, "belong together"),
    ):
        with pytest.raises(ValueError, match=said):
            ServeSettings.model_validate(settings)


def test_a_wrong_call_of_the_command_is_one_sentence(usvit, tmp_path):
    for arguments, said in (
        (["review", tmp_path / "none.yaml"], "none.yaml"),
        (["review", "--demo", tmp_path / "x.yaml"], "or pass --demo"),
        (["review", "status", tmp_path / "none.yaml"], "none.yaml"),
    ):
        answer = usvit(*arguments)
        assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err
