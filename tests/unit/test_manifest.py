"""verify.manifest: image.json tells what is there, and refuses to tell what is not."""

import json
import subprocess
from importlib import metadata

import pytest

from verify import manifest

LOCK = """\
pytest=={pytest} \\
    --hash=sha256:00
Iniconfig=={iniconfig} ; python_version >= '3.10' \\
    --hash=sha256:00
gone==1.0 ; python_version < '3.0' \\
    --hash=sha256:00
torch==2.8.0 ; python_version < '3.0'
"""


@pytest.fixture
def lock():
    return LOCK.format(pytest=metadata.version("pytest"), iniconfig=metadata.version("iniconfig"))


def test_only_packages_whose_markers_hold_are_locked(lock):
    assert sorted(manifest.locked_packages(lock)) == ["iniconfig", "pytest"]


@pytest.mark.parametrize(
    ("name", "variant", "archs", "disabled"),
    [
        ("flash_attn-2.8.2-1fullsm80-cp313-cp313-linux_x86_64.whl", "full", ["sm_80"], []),
        (
            "flash_attn-2.8.2-1leansm80sm90a-cp310-cp310-linux_x86_64.whl",
            "lean",
            ["sm_80", "sm_90a"],
            manifest.LEAN_DISABLED,
        ),
    ],
)
def test_wheel_name_tells_variant_and_archs(tmp_path, name, variant, archs, disabled):
    (tmp_path / name).write_bytes(b"")
    facts = manifest.flash_attention(tmp_path)
    assert (facts["variant"], facts["archs"], facts["disabled"]) == (variant, archs, disabled)
    assert facts["sha256"].startswith("e3b0c442")


def test_no_wheel_is_variant_none(tmp_path):
    assert manifest.flash_attention(tmp_path)["variant"] == "none"


@pytest.mark.parametrize("names", [["flash_attn-2.8.2-cp313-cp313-linux_x86_64.whl"], ["a-1.whl", "b-1.whl"]])
def test_wheel_that_does_not_tell_what_it_is_stops_the_build(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(SystemExit, match="named by variant"):
        manifest.flash_attention(tmp_path)


def test_package_other_than_locked_stops_the_build(tmp_path, lock):
    with pytest.raises(SystemExit, match=r"pytest .* is installed where the lock says 1.0"):
        manifest.describe("devel", lock.replace(metadata.version("pytest"), "1.0"), tmp_path, {})


def test_lean_list_is_what_the_build_switches_off(tmp_path):
    script = subprocess.run(["grep", "^lean_off=", "docker/flash-attn.sh"], capture_output=True, text=True, check=True)
    assert sorted(script.stdout.split('"')[1].lower().split()) == manifest.LEAN_DISABLED


def test_slim_manifest_is_taken_over_when_it_is_for_the_declared_targets(tmp_path):
    place = tmp_path / "slim.json"
    assert manifest.slimming(place, ["sm_89"]) is None
    assert manifest.slimming(None, ["sm_89"]) is None
    place.write_text('{"targets": ["sm_89"], "files": []}')
    assert manifest.slimming(place, ["sm_89"]) == {"targets": ["sm_89"], "files": []}
    with pytest.raises(SystemExit, match=r"slimmed for sm_89 and the image is declared for sm_80, sm_89"):
        manifest.slimming(place, ["sm_80", "sm_89"])


def test_command_line_writes_the_file(tmp_path, lock, monkeypatch):
    monkeypatch.setattr(manifest, "locked_packages", lambda text: {"torch": "2.8.0"})
    monkeypatch.setattr(manifest.metadata, "version", lambda name: "2.8.0+cu128")
    (tmp_path / "lock").write_text(lock)
    facts = json.dumps({"revision": "abc", "targets": ["sm_86", "sm_89"]})
    arguments = ["--target", "runtime", "--lock", str(tmp_path / "lock"), "--wheelhouse", str(tmp_path / "none")]
    manifest.main([*arguments, "--facts", facts, "--out", str(tmp_path / "opt/image.json")])
    written = json.loads((tmp_path / "opt/image.json").read_text())
    assert (written["revision"], written["targets"], written["toolkit"]) == ("abc", ["sm_86", "sm_89"], None)
