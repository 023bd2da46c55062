"""docker/*.sh on the host, with a fake docker: bad input ends in one sentence and a non-zero exit."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Answers like an engine of version $ENGINE with BuildKit $BUILDKIT that holds no image.
FAKE_DOCKER = """#!/bin/sh
case "$1 $2" in
  "version --format") [ -n "$ENGINE" ] && echo "$ENGINE" || exit 1 ;;
  "buildx version") [ -z "$NO_BUILDX" ] ;;
  "buildx inspect") echo "BuildKit version: v$BUILDKIT" ;;
  "image inspect") exit 1 ;;
  "pull -q") echo "no such host" >&2; exit 1 ;;
  *) exit 1 ;;
esac
"""

TOOLS = "basename bash sh env grep sed sort head tail tr cut id nproc mktemp rm dirname cat timeout seq sleep awk"


@pytest.fixture
def run(tmp_path):
    """Run a script of docker/ with the fake engine and without apt, in an empty working folder."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "docker").write_text(FAKE_DOCKER)
    (binaries / "docker").chmod(0o755)
    for name in TOOLS.split():
        if found := next((Path(p) / name for p in os.environ["PATH"].split(":") if (Path(p) / name).exists()), None):
            (binaries / name).symlink_to(found)
    (binaries / "python3").symlink_to(os.path.realpath("/proc/self/exe"))

    def call(script, *arguments, **environment):
        return subprocess.run(
            ["bash", ROOT / "docker" / script, *arguments],
            env={"PATH": str(binaries), "ENGINE": "26.1.5", "BUILDKIT": "0.13.1"} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def test_engine_that_answers_is_used_quietly(run):
    result = run("engine.sh")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_engine_of_a_distribution_that_does_not_know_its_buildkit_is_used(run):
    assert run("engine.sh", BUILDKIT="0.0.0+unknown").returncode == 0


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"BUILDKIT": "0.12.5"}, "BuildKit 0.12.5 is too old"),
        ({"BUILDKIT": "0.0.0+unknown", "ENGINE": "24.0.7"}, "BuildKit 0.12 or older (of Docker 24.0.7) is too old"),
        ({"NO_BUILDX": "1"}, "docker buildx plugin is missing"),
    ],
)
def test_engine_that_cannot_build_is_named_with_the_fix(run, environment, sentence):
    result = run("engine.sh", **environment)
    assert result.returncode == 1
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("image", ["nope:1", "debian:Trixie!"])
def test_unknown_base_is_one_sentence(run, image):
    result = run("base.sh", image)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"the base image {image} is neither on this machine nor to be pulled" in result.stderr


def test_bootstrapping_without_apt_says_what_to_do(run):
    result = run("base.sh", "debian:trixie-slim")
    assert result.returncode == 1
    assert "needs Debian or Ubuntu with apt" in result.stderr


def wheel(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("flash_attn/__init__.py", "")


@pytest.mark.parametrize(
    ("present", "wanted", "answer"),
    [
        ([], "none", "none none"),
        ([], "full", "full build"),
        ([], "lean", "lean build"),
        (
            ["1fullsm80-cp313", "1leansm80-cp313"],
            "auto",
            "full wheelhouse/flash_attn-2.8.2-1fullsm80-cp313-cp313-linux_x86_64.whl",
        ),
        (
            ["1fullsm80-cp313", "1leansm80-cp313"],
            "lean",
            "lean wheelhouse/flash_attn-2.8.2-1leansm80-cp313-cp313-linux_x86_64.whl",
        ),
        (["1fullsm90-cp313", "1fullsm80-cp311"], "full", "full build"),
    ],
)
def test_wheel_is_resolved_by_variant_arch_and_python(run, tmp_path, present, wanted, answer):
    for label in present:
        wheel(tmp_path / "wheelhouse", f"flash_attn-2.8.2-{label}-{label.split('-')[1]}-linux_x86_64.whl")
    result = run("flash-attn.sh", "resolve", "cp313", FLASH_ATTN=wanted)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, answer, "")


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"FLASH_ATTN": "some"}, "FLASH_ATTN=some is none of auto, full, lean, none"),
        ({"WHEELHOUSE": "absent", "WHEELHOUSE_GIVEN": "1"}, "WHEELHOUSE=absent is no folder"),
    ],
)
def test_wheel_choice_that_cannot_be_met_is_one_sentence(run, environment, sentence):
    result = run("flash-attn.sh", "resolve", "cp313", **environment)
    assert (result.returncode, result.stdout) == (1, "")
    assert sentence in result.stderr


@pytest.mark.parametrize(("variant", "groups"), [("lean", 6 + 6), ("full", 24 + 12)])
def test_every_kernel_unit_is_compiled_once(run, tmp_path, variant, groups):
    """As in FlashAttention-2's sources: 24 units each of backward, forward and split, listed in setup.py."""
    source = tmp_path / "csrc/flash_attn/src"
    source.mkdir(parents=True)
    units = [
        f"flash_{kind}_hdim{dim}_{dtype}{causal}_sm80.cu"
        for kind in ("bwd", "fwd", "fwd_split")
        for dim in (32, 64, 96, 128, 192, 256)
        for dtype in ("fp16", "bf16")
        for causal in ("", "_causal")
    ]
    for unit in units:
        (source / unit).write_text(f"// {unit}\n")
    (tmp_path / "setup.py").write_text("flash_api.cpp\n" + "".join(f"csrc/flash_attn/src/{u}\n" for u in units))
    template = (
        "if (max_smem_per_block >= 144 * 1024) {\n} else if (max_smem_per_block >= 2 * (Headdim + 3)) {  // A\n"
        "if (is_sm8x) {\nBOOL_SWITCH(is_even_MN, A, [&] {\n}\n"
        "void run_flash_splitkv_fwd(Flash_fwd_params &params) {\n"
        "    BOOL_SWITCH(is_even_MN, A, [&] {\n        EVENK_SWITCH(is_even_K, B, [&] {\n}\n"
    )
    for name in ("fwd", "bwd"):
        (source / f"flash_{name}_launch_template.h").write_text(template)
    (source / "static_switch.h").write_text("#pragma once\n")
    result = run("flash-attn.sh", "prepare", variant)
    assert (result.returncode, result.stderr) == (0, "")
    left = sorted(p.name for p in source.glob("*.cu"))
    assert len(left) == groups
    listed = (tmp_path / "setup.py").read_text().splitlines()
    assert sorted(listed) == sorted(["flash_api.cpp", *(f"csrc/flash_attn/src/{name}" for name in left)])
    compiled = [line.removeprefix("// ") for name in left for line in (source / name).read_text().splitlines()]
    assert sorted(compiled) == sorted(units)
    made = (source / "flash_fwd_launch_template.h").read_text()
    fewer = (
        "if constexpr (false) {\n} else if constexpr (false) {  // A\n"
        "if constexpr (true) {\nBOOL_SWITCH(is_even_MN, A, [&] {\n}\n"
        "void run_flash_splitkv_fwd(Flash_fwd_params &params) {\n"
        "    NO_SWITCH(is_even_MN, A, [&] {\n        NO_SWITCH(is_even_K, B, [&] {\n}\n"
    )
    assert made == (fewer if variant == "lean" else template)
    assert ("#define NO_SWITCH" in (source / "static_switch.h").read_text()) is (variant == "lean")


def test_damaged_wheel_is_named(run, tmp_path):
    (tmp_path / "wheelhouse").mkdir()
    (tmp_path / "wheelhouse/flash_attn-2.8.2-1fullsm80-cp313-cp313-linux_x86_64.whl").write_text("half a file")
    result = run("flash-attn.sh", "resolve", "cp313")
    assert result.returncode == 1
    assert "is damaged: delete it" in result.stderr


def test_packages_are_chosen_by_their_exact_name(tmp_path):
    """Debian 12 has no g++-13, and `apt-cache show g++-13` answers with clang-13: a pattern it fits."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "apt-cache").write_text(
        '#!/bin/sh\ncase $2 in g++-13) echo "Package: clang-13" ;; g++-12) echo "Package: g++-12" ;; esac\n'
    )
    (binaries / "apt-get").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/called\n')
    for name in ("apt-cache", "apt-get"):
        (binaries / name).chmod(0o755)
    (tmp_path / "list").write_text("g++-13|g++-12|g++-11   # a comment\n")
    environment = {"PATH": f"{binaries}:{os.environ['PATH']}", "SIMULATE": str(tmp_path / "state")}
    command = ["sh", str(ROOT / "docker/apt.sh"), str(tmp_path / "list")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "install --no-install-recommends g++-12\n" in (tmp_path / "called").read_text()

    (tmp_path / "list").write_text("g++-13\n")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this base offers none of: g++-13" in done.stderr
