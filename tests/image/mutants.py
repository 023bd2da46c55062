"""Ways to break the good image: each names what must be noticed, and what may follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field

# What every script may use: the packages' folder, a stand-in library, and a line changed in a wheel's metadata.
PRELUDE = r"""
set -e
site=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
library() { # path, soname, C source
  mkdir -p "$(dirname "$1")" && printf '%s\n' "$3" | gcc -shared -fPIC -Wl,-soname,"$2" -x c - -o "$1"
}
wheel() { # distribution, files of the package: replaced by the wheel of that name in /wheels
  (cd "$site" && rm -rf "$@") && /opt/venv/bin/python -m zipfile -e /wheels/"$1"-*.whl "$site"
}
version() { # distribution, version: what its metadata says from now on
  sed -i "s/^Version: .*/Version: $2/" "$site"/$1-*.dist-info/METADATA
}
extension() { # name, options of nvcc: a library of one kernel among xFormers' files
  echo '__global__ void k(int *x) { *x = 1; } void go(int *x) { k<<<1, 1>>>(x); }' >/tmp/k.cu
  nvcc "${@:2}" -shared -Xcompiler -fPIC /tmp/k.cu -o "$site/xformers/$1"
}
"""


@dataclass(frozen=True)
class Mutant:
    """`script` breaks a container as root before verify runs in it with `environment`.

    Every check of `rejected_by` must fail with `hint` in the hint of one of them. `follows` may fail or warn too, being
    true consequences of the same cause; any other check that was content with the good image must stay so. `light` ones
    change nothing that is imported or compiled against, so the slow checks of that are left out.
    """

    name: str
    script: str
    rejected_by: tuple[str, ...]
    hint: str
    follows: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    about: str = "image"
    light: bool = False


IMPORTS = ("imports.packages", "imports.quiet")
COMPILES = ("compilers.torch_compile", "compilers.triton_compiles")
SLOW = (*IMPORTS, "compilers.torch_compile")

MUTANTS = (
    Mutant(
        "torchvision-of-another-torch",
        "wheel torchvision torchvision-* torchvision.libs",
        ("stack.lock", "stack.family", "libraries.extensions_were_built_for_this_torch"),
        "torchvision",
        (*IMPORTS, "stack.requirements"),
    ),
    Mutant(
        "torchaudio-of-another-torch",
        "wheel torchaudio torchaudio-* torio",
        ("stack.lock", "stack.family", "libraries.extensions_were_built_for_this_torch"),
        "torchaudio",
        (*IMPORTS, "stack.requirements"),
    ),
    Mutant(
        "xformers-of-another-torch",
        "wheel xformers xformers-*",
        ("stack.lock", "stack.xformers_build", "libraries.extensions_were_built_for_this_torch"),
        "xformers",
        (*IMPORTS, "stack.requirements", "stack.flash_attention_range"),
    ),
    Mutant(
        "flash-attn-too-new-for-xformers",
        "version flash_attn 2.8.3; "
        'sed -i \'s/^__version__ = .*/__version__ = "2.8.3"/\' "$site/flash_attn/__init__.py"',
        ("stack.flash_attention_range", "stack.lock"),
        "2.8.2",
        (*IMPORTS, "image.flash_attention"),
    ),
    Mutant(
        "flash-attn-built-for-another-torch",
        'target=$(ls "$site"/flash_attn_2_cuda*.so); torch=$site/torch/lib; '
        "echo 'extern void _ZN3c104cuda9SetDeviceEa(signed char); void PyInit_flash_attn_2_cuda(void)"
        "{ _ZN3c104cuda9SetDeviceEa(0); }' "
        '| gcc -shared -fPIC -x c - -o "$target" -L"$torch" -Wl,--no-as-needed -lc10 -lc10_cuda -ltorch_cpu',
        ("libraries.extensions_were_built_for_this_torch",),
        "torch",
        (*IMPORTS, "image.flash_attention", "binaries.libraries_run_on_targets"),
    ),
    Mutant(
        "cudnn-part-of-another-version-first",
        "library /other/libcudnn_graph.so.9 libcudnn_graph.so.9 'int stranger;'",
        ("loading.environment_leaves_torch_alone",),
        "LD_LIBRARY_PATH",
        ("stack.runtime_libraries",),  # cuDNN aborts the process that asks for its version
        environment={"LD_LIBRARY_PATH": "/other"},
        about="image,container",
    ),
    Mutant(
        "cuda-compat-on-the-loader-path",
        "library /usr/local/cuda-12.4/compat/libcuda.so.1 libcuda.so.1 'int cuInit(unsigned f){return 804;}'; "
        "echo /usr/local/cuda-12.4/compat >/etc/ld.so.conf.d/compat.conf; ldconfig",
        ("loading.libcuda_is_the_drivers",),
        "compat",
    ),
    Mutant(
        "stub-libcuda-on-the-loader-path",
        "ln -s libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1",
        ("environment.library_path",),
        "LD_LIBRARY_PATH",
        ("loading.libcuda_is_the_drivers", "imports.quiet"),  # torch warns of error 34
        environment={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"},
    ),
    Mutant(
        "no-c-compiler",
        "rm -f /usr/local/bin/{gcc,g++,cc,c++} /usr/bin/*gcc* /usr/bin/*g++*",
        ("compilers.c_compiler",),
        "gcc",
        (*COMPILES, "compilers.nvcc_host_compiler", "compilers.nvcc_compiles", "compilers.python_headers"),
        light=True,
    ),
    Mutant(
        "no-python-headers",
        "rm -rf /usr/include/python3*",
        ("compilers.python_headers",),
        "python3",
        ("compilers.torch_compile",),
    ),
    Mutant(
        "host-compiler-too-new-for-nvcc",
        'rm /usr/local/bin/g++; printf \'#!/bin/sh\\ncase "$*" in *-dumpversion*|*-dumpfullversion*) echo 14.2.0;; '
        '*--version*) echo "g++ (Debian 14.2.0-19) 14.2.0";; *) exec /usr/bin/g++-13 -U__GNUC__ -D__GNUC__=14 "$@";; '
        "esac\\n' >/usr/local/bin/g++; chmod 755 /usr/local/bin/g++; rm /usr/local/bin/gcc; "
        "sed 's/g++-13/gcc-13/; s/g++ (/gcc (/' /usr/local/bin/g++ >/usr/local/bin/gcc; chmod 755 /usr/local/bin/gcc",
        ("compilers.nvcc_host_compiler",),
        "13",
        ("compilers.nvcc_compiles", "compilers.torch_compile"),
        light=True,
    ),
    Mutant(
        "nvcc-of-cuda-11",
        "printf '#!/bin/sh\\necho \"Cuda compilation tools, release 11.8, V11.8.89\"\\n' >/usr/local/cuda/bin/nvcc",
        ("compilers.nvcc_matches_torch", "image.toolkit"),
        "12",
        ("compilers.nvcc_compiles", "compilers.nvcc_host_compiler"),
        light=True,
    ),
    Mutant(
        "nvcc-without-a-header",
        "rm /usr/local/cuda/include/cuda_bf16.h*",
        ("compilers.nvcc_compiles",),
        "header",
        light=True,
    ),
    Mutant(
        "no-nvcc",
        "rm -rf /usr/local/cuda-12.4/bin",
        ("image.toolkit",),
        "make image",
        ("environment.path", "environment.cuda_home"),
        light=True,
    ),
    Mutant(
        "extension-with-code-for-another-card-only",
        "extension only_hopper.so -arch=sm_90",
        ("binaries.libraries_run_on_targets",),
        "this card",
        light=True,
    ),
    Mutant(
        "extension-that-needs-the-driver-to-compile-ptx",
        "extension ptx.so -gencode arch=compute_80,code=compute_80",
        ("binaries.no_ptx_jit",),
        "sm_89",
        light=True,
    ),
    Mutant(
        "library-cut-short",
        'truncate -s -5000000 "$site/torch/lib/libtorch_cuda_linalg.so"',
        ("binaries.files_are_whole",),
        "install",
        ("binaries.libraries_run_on_targets",),
    ),
    Mutant(
        "nvjitlink-of-another-version-preloaded",
        "library /other/libnvJitLink.so.12 libnvJitLink.so.12 'int __nvJitLinkCreate_12_4;'",
        ("loading.environment_leaves_torch_alone",),
        "LD_PRELOAD",
        (*IMPORTS, *COMPILES, "stack.runtime_libraries", "environment.preload"),
        environment={"LD_PRELOAD": "/other/libnvJitLink.so.12"},
        about="image,container",
    ),
    Mutant(
        "torch-replaced-by-another-version",
        'version torch 2.9.0; mv "$site"/torch-2.8.0.dist-info "$site/torch-2.9.0.dist-info"',
        ("stack.lock",),
        "torch==2.8.0",
        (
            *("stack.family", "stack.requirements", "stack.xformers_build", "stack.torch_pins", "stack.torch_build"),
            "libraries.extensions_were_built_for_this_torch",
        ),
    ),
    Mutant(
        "cuda-library-of-another-version",
        "version nvidia_cudnn_cu12 9.5.1.17",
        ("stack.torch_pins", "stack.lock"),
        "nvidia-cudnn-cu12",
        ("stack.requirements", "stack.runtime_libraries"),
        light=True,
    ),
    Mutant(
        "cuda-library-missing",
        'rm -rf "$site"/nvidia/cusparselt "$site"/nvidia_cusparselt*',
        ("libraries.needed_libraries_are_found", "stack.lock"),
        "nvidia-cusparselt-cu12",
        (
            *(*IMPORTS, *COMPILES, "stack.requirements", "stack.torch_pins", "stack.runtime_libraries"),
            *("binaries.libraries_run_on_targets", "libraries.torch_symbols_are_defined"),
        ),
    ),
    Mutant(
        "package-missing",
        'rm -rf "$site"/einops "$site"/einops-*',
        ("stack.lock",),
        "einops",
        (*IMPORTS, "stack.requirements"),
    ),
    Mutant(
        "package-broken",
        'echo "raise ImportError(42)" >"$site/safetensors/__init__.py"',
        ("imports.packages",),
        "safetensors",
        ("imports.quiet",),
    ),
    Mutant(
        "image-that-misstates-its-toolkit",
        'sed -i \'s/"toolkit": .*/"toolkit": "12.8.93",/\' /opt/verify/image.json',
        ("image.toolkit",),
        "make image",
        light=True,
    ),
    Mutant(
        "torch-compile-switched-off",
        "true",
        ("environment.compile_switches",),
        "TORCHDYNAMO_DISABLE",
        ("compilers.torch_compile",),
        environment={"TORCHDYNAMO_DISABLE": "1"},
        about="image,container",
    ),
    Mutant(
        "no-output-folder",
        "rm -rf /workspace/output; touch /workspace/output",
        ("workspace.folders",),
        "/workspace",
        ("workspace.writable",),
        about="image,container",
        light=True,
    ),
)

# FAILURES that are none: each looks odd and works, so nothing may be said about it.
HARMLESS = (
    Mutant("nothing", "true", (), ""),
    Mutant("toolkit-on-the-library-path", "true", (), "", environment={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}),
    Mutant("ptxas-path-to-nowhere", "true", (), "", environment={"TRITON_PTXAS_PATH": "/nowhere"}),
    Mutant(
        "no-nvidia-smi",
        "rm -f /usr/bin/nvidia-smi",
        (),
        "",
        environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
    ),
)
