"""A signature covers every file of a model, and nothing else is taken for one."""

import json
import shutil
import subprocess

import pytest

import usvit as package
from tests.publishing.conftest import write_keys
from usvit.errors import UsvitError
from usvit.publishing import FILE, refuse_unsigned, sign_model
from usvit.publishing.signature import signed_bytes


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_verifies_the_signature_of_the_documented_bytes(model, keys, tmp_path):
    record = json.loads(sign_model(model, keys[0]).read_text())
    text = json.dumps(record["files"], sort_keys=True, separators=(",", ":"))
    (tmp_path / "message").write_bytes(b"usvit model files 1\n" + text.encode())
    (tmp_path / "signature").write_bytes(bytes.fromhex(record["signature"]["value"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", keys[1], "-rawin", "-in", tmp_path / "message"]
    said = subprocess.run([*command, "-sigfile", tmp_path / "signature"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    for name, sha256 in record["files"].items():
        told = subprocess.run(["sha256sum", model / name], capture_output=True, text=True, check=True).stdout
        assert told.split()[0] == sha256
    assert set(record["files"]) == {"metrics.json", "model.json", "model.safetensors", "predictions.csv"}


def test_keys_of_openssl_are_read(model, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, public = tmp_path / "key.pem", tmp_path / "key.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    sign_model(model, key)
    refuse_unsigned(model, public)


def test_a_signed_model_is_loaded_and_scores(model, keys):
    (model / "predictions.csv").unlink()
    sign_model(model, keys[0])
    predictor = package.load_model(model, require_signature=keys[1], operating_point="0.5")
    assert predictor.classes == ("benign", "malignant", "normal")


@pytest.mark.parametrize("name", ["metrics.json", "model.json", "model.safetensors", "predictions.csv"])
def test_one_flipped_byte_of_any_file_is_refused(model, keys, name):
    sign_model(model, keys[0])
    flip(model / name)
    with pytest.raises(UsvitError, match=rf"{name}.* (SHA-256|damaged)"):
        refuse_unsigned(model, keys[1])


def test_a_changed_list_an_added_and_a_missing_file_are_refused(model, keys):
    sign_model(model, keys[0])
    listed = (model / FILE).read_text()
    record = json.loads(listed)
    record["files"]["predictions.csv"] = "0" * 64
    (model / FILE).write_text(json.dumps(record))
    with pytest.raises(UsvitError, match="list was changed after it was signed"):
        refuse_unsigned(model, keys[1])
    (model / FILE).write_text(listed)
    (model / "novelty.safetensors").write_bytes(b"")
    with pytest.raises(UsvitError, match=r"novelty\.safetensors was added to"):
        refuse_unsigned(model, keys[1])
    (model / "novelty.safetensors").unlink()
    (model / "predictions.csv").unlink()
    with pytest.raises(UsvitError, match=r"predictions\.csv is missing from"):
        refuse_unsigned(model, keys[1])


def test_another_key_and_no_signature_are_refused_by_the_command(model, keys, usvit, tmp_path):
    ask = ("score", "--model", model, "--input", tmp_path, "--out", tmp_path / "out", "--require-signature")
    answer = usvit(*ask, keys[1])
    assert answer.code == 2 and "is not signed" in answer.err and len(answer.err.splitlines()) == 1
    assert usvit("models", "sign", model, "--key", keys[0]).code == 0
    answer = usvit(*ask, write_keys(tmp_path, "other")[1])
    assert answer.code == 2 and "signed with another key" in answer.err and len(answer.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_stranger_who_signs_with_the_wanted_keys_name_is_refused(model, keys, tmp_path):
    sign_model(model, write_keys(tmp_path, "stranger")[0])
    own = json.loads(sign_model(shutil.copytree(model, tmp_path / "copy"), keys[0]).read_text())["signature"]
    record = json.loads((model / FILE).read_text())
    record["signature"]["public_key"] = own["public_key"]
    (model / FILE).write_text(json.dumps(record))
    with pytest.raises(UsvitError, match="does not belong to the files"):
        refuse_unsigned(model, keys[1])


def test_a_folder_beside_the_folds_of_a_signed_run_is_not_covered(model, keys, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(model, run / "evil")
    (run / "run.json").write_text("{}")
    files = {"run.json": "0" * 64}
    sign_model(model, keys[0])
    record = json.loads((model / FILE).read_text()) | {"files": files}
    (run / FILE).write_text(json.dumps(record))
    with pytest.raises(UsvitError, match="does not cover"):
        refuse_unsigned(run / "evil", keys[1])


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_named(model, content, tmp_path):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UsvitError, match=r"key .* cannot be read"):
        sign_model(model, tmp_path / "key")
    assert not (model / FILE).exists()


def test_the_signed_bytes_do_not_depend_on_the_order_of_the_files():
    assert signed_bytes({"b": "2", "a": "1"}) == b'usvit model files 1\n{"a":"1","b":"2"}'
