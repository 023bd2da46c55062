"""CUDA's own libraries (cuBLAS, cuDNN, NCCL, nvJitLink …) are not the ones PyTorch was built with, or fail."""

from __future__ import annotations

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

AGAIN = "pip install --no-deps --force-reinstall"
NVIDIA_LIBRARY = (
    r"(?P<library>lib(?:cudart|cublas(?:Lt)?|cufft|cufile|curand|cusolver(?:Mg)?|cusparse(?:Lt)?|nvrtc(?:-builtins)?|nvJitLink"
    r"|cupti|nvToolsExt|nvshmem_host|npp\w{0,4}|nvjpeg)\.so"
)
ENTRIES = (
    Entry(
        id="nvjitlink-mismatch",
        title="nvJitLink is not the one the CUDA libraries were built with",
        layer="libraries",
        rank=1,
        cause="A CUDA library needs nvJitLink 12.{minor|x} and gets an older one: the nvidia-nvjitlink-cu12 wheel "
        "was replaced, or LD_PRELOAD brings another. (LD_LIBRARY_PATH cannot do that to torch 2.8.)",
        fix="Install the nvJitLink that torch pins (12.8.93 for torch 2.8.0) and clear LD_PRELOAD.",
        command=f"{AGAIN} nvidia-nvjitlink-cu12==12.8.93; unset LD_PRELOAD",
        text=(r"__nvJitLink\w{1,40}?_\d{2}_(?P<minor>\d{1,2})", r"undefined symbol: \w{0,4}nvJitLink\w{0,40}"),
        facts=facts_stack.nvjitlink,
        hides=("xformers-not-loadable",),
        source=("pytorch/pytorch#131312", "pytorch/pytorch#111469"),
    ),
    Entry(
        id="cudnn-version",
        title="The cuDNN that is loaded is not the one PyTorch was built with",
        layer="libraries",
        rank=2,
        cause="PyTorch was built with cuDNN {built|of one version} and loads {found|another}: a replaced wheel, "
        "LD_PRELOAD, or a system cuDNN found first.",
        fix="Reinstall the cuDNN wheel that torch pins (9.10.2.21 for torch 2.8.0) and take foreign folders out of "
        "LD_LIBRARY_PATH and LD_PRELOAD.",
        command=f"{AGAIN} nvidia-cudnn-cu12==9.10.2.21; unset LD_LIBRARY_PATH LD_PRELOAD",
        text=(
            (
                r"cuDNN version incompatibility(?:.{0,60}against \((?P<built>[\d, ]{3,20})\).{0,60}version \("
                r"(?P<found>[\d, ]{3,20})\))?"
            ),
            r"loaded runtime cudnn library: (?P<found>\S{1,20}) but source was compiled with: (?P<built>\S{1,20})",
            r"cudnn library (?:major|minor)? ?version mismatch",
            r"compiled with cuDNN \S{1,20} but found",
        ),
        facts=facts_stack.cudnn,
        hides=("cudnn-part-foreign", "cudnn-failed"),
        source=("pytorch/pytorch#80637",),
    ),
    Entry(
        id="cudnn-part-foreign",
        title="A part of cuDNN comes from somewhere else",
        layer="libraries",
        rank=3,
        cause="cuDNN loads its parts later, and {library|one of them} comes from another installation through "
        "LD_LIBRARY_PATH, of another version, or is missing; that may end the process without a Python error.",
        fix="Take the folder with that libcudnn out of LD_LIBRARY_PATH (the wheel finds its own), or remove the "
        "system's cuDNN; then reinstall nvidia-cudnn-cu12.",
        command=f"unset LD_LIBRARY_PATH; {AGAIN} nvidia-cudnn-cu12==9.10.2.21",
        text=(
            r"could not load library (?P<library>libcudnn\S{1,60}?)\.?(?:\s|$)",
            r"could not load symbol cudnn\w{1,60}",
            r"unable to load any of \{?(?P<library>libcudnn[\w.]{1,40})",
            r"(?P<library>libcudnn_\w{1,40}\.so\S{0,8}): (?:undefined symbol|cannot open)",
            r"CUDNN_STATUS_SUBLIBRARY_(?:VERSION_MISMATCH|LOADING_FAILED)",
            r"undefined symbol: \w{0,20}cudnn\w{1,80}",
            r"invalid handle\. cannot load symbol cudnn\w{1,40}",
        ),
        hides=("cudnn-failed", "process-aborted", "cuda-library-missing"),
        source=("pytorch/pytorch#119989", "replicate/cog#1430"),
    ),
    Entry(
        id="nccl-mismatch",
        title="NCCL is not the one PyTorch needs",
        layer="libraries",
        rank=4,
        cause="The NCCL that is loaded is not the one PyTorch was built with, or is missing: its wheel was replaced "
        "or removed, or another package brought its own.",
        fix="Reinstall the NCCL that torch pins (2.27.3 for torch 2.8.0), once, and clear LD_PRELOAD.",
        command=f"{AGAIN} nvidia-nccl-cu12==2.27.3; pip list | grep -i nccl",
        text=(
            r"undefined symbol: p?nccl[A-Z]\w{1,60}",
            r"libnccl(?:-net)?\.so\.2: cannot open shared object",
            r"libnccl\.so\S{0,8}: version `?\S{1,30} not found",
            r"NCCL version mismatch",
        ),
        facts=facts_stack.nccl,
        source=("vllm-project/vllm#4195", "NVIDIA/nccl#1180"),
    ),
    Entry(
        id="cuda-library-of-other-major",
        title="A package was built for another CUDA family",
        layer="libraries",
        rank=5,
        cause="A package needs {library|a library}, of CUDA {major|11 or 13}; this stack is of CUDA 12.",
        fix="Install the build of that package for CUDA 12 (a cu12x wheel or index), or build it here with the "
        "image's nvcc.",
        command="pip list | grep -iE 'cu1[0-9]'",
        text=(
            r"(?P<library>libcudart\.so\.(?P<major>11|13|10)[.\d]{0,5}): cannot open shared object",
            r"(?P<library>libcublas(?:Lt)?\.so\.(?P<major>11|13|10)): cannot open shared object",
            r"(?P<library>libnvrtc\.so\.(?P<major>11|13|10)[.\d]{0,5}): cannot open shared object",
            r"(?P<library>libcu(?:fft|rand)\.so\.(?P<major>9|8)): cannot open shared object",
            r"(?P<library>libcudnn\.so\.(?P<major>[78])): cannot open shared object",
            r"could not load dynamic library '(?P<library>lib(?:cudart|cublas|cudnn|cufft|cusparse)\S{1,20}?)'",
            r"(?P<library>libcu(?:dart|blas)\S{0,6}\.so\.\d{1,2}): undefined symbol",
        ),
        unless=(r"XFORMERS", r"libcuda\.so\.1: cannot open"),
        hides=("cuda-library-missing",),
    ),
    Entry(
        id="cuda-library-missing",
        title="A CUDA library that comes with PyTorch is missing",
        layer="libraries",
        rank=6,
        cause="{library|A CUDA library} cannot be found: its nvidia-*-cu12 wheel was removed or is damaged, or the "
        "program is outside Python and relies on PyTorch's copies.",
        fix="Reinstall torch with what it requires; for programs outside Python put the wheel's folder on "
        "LD_LIBRARY_PATH for that program alone.",
        command="pip install --force-reinstall torch==2.8.0",
        text=(
            NVIDIA_LIBRARY + r"[\d.]{0,9}): cannot open shared object",
            r"(?:could not|cannot|failed to|unable to) load(?: library)? \"?" + NVIDIA_LIBRARY + r")",
            r"(?P<library>libcudnn\.so\.9): cannot open shared object",
            NVIDIA_LIBRARY + r"[\d.]{0,9}).{0,20}(?:not found|=> not found)",
            r"(?:failed to open|error:).{0,30}(?P<library>nvrtc-builtins)",
            r"library (?P<library>(?:cublas|cudart|cusparse|nvrtc|cudnn)\S{0,20}) (?:is )?not found",
        ),
    ),
    Entry(
        id="cublas-failed",
        title="cuBLAS cannot work",
        layer="resources",
        rank=31,
        cause="cuBLAS could not start or get its memory ({status|an error}): nearly always the GPU's memory is "
        "full, or an index error of an earlier kernel shows here first.",
        fix="Look at `nvidia-smi` for free memory and try a smaller batch; then run with CUDA_LAUNCH_BLOCKING=1 to "
        "find an earlier error. If both are well, LD_LIBRARY_PATH brings another cuBLAS: unset it.",
        command="nvidia-smi; CUDA_LAUNCH_BLOCKING=1 python …",
        text=(
            (
                r"(?P<status>CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|EXECUTION_FAILED|INTERNAL_ERROR"
                r"|INVALID_VALUE|NOT_SUPPORTED))"
            ),
            r"(?P<status>CUSOLVER_STATUS_\w{4,30})",
            r"(?P<status>CUSPARSE_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR|INSUFFICIENT_RESOURCES))",
            r"failed to create (?P<status>cublas) handle",
        ),
    ),
    Entry(
        id="cufft-failed",
        title="cuFFT cannot make or run a Fourier transform",
        layer="resources",
        rank=31,
        cause="cuFFT stopped with {status|an error}. It has the driver compile kernels when a transform is first used, "
        "so CUDA_DISABLE_PTX_JIT is set, or libnvidia-ptxjitcompiler.so.1 is missing in the container, or the "
        "GPU's memory is full. PyTorch builds of CUDA 11.7 and older fail so on every RTX 40 card.",
        fix="Unset CUDA_DISABLE_PTX_JIT, start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility, free "
        "memory on the card (`nvidia-smi`), and use a PyTorch of CUDA 11.8 or newer.",
        command="env -u CUDA_DISABLE_PTX_JIT python -c 'import torch; print(torch.version.cuda, "
        'torch.fft.fft(torch.ones(1000, device="cuda")).sum())\'',
        text=(
            r"(?P<status>CUFFT_(?:INTERNAL_ERROR|ALLOC_FAILED|EXEC_FAILED|SETUP_FAILED|INVALID_PLAN))",
            r"cufft error: (?P<status>CUFFT_\w{4,30})",
        ),
        source=("pytorch/pytorch#88038", "pytorch/pytorch#119420"),
        checks=("computes.fourier",),
    ),
    Entry(
        id="cudnn-failed",
        title="cuDNN cannot work",
        layer="resources",
        rank=32,
        cause="cuDNN could not start or run ({status|an error}): the GPU's memory is full, or another cuDNN than "
        "PyTorch's is loaded.",
        fix="Look at `nvidia-smi` for free memory and try a smaller batch; unset LD_LIBRARY_PATH; "
        "`verify run stack.runtime_libraries` says which cuDNN is loaded.",
        command="nvidia-smi; env -u LD_LIBRARY_PATH python …",
        text=(
            (
                r"(?P<status>CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR\w{0,30}"
                r"|EXECUTION_FAILED\w{0,30}|MAPPING_ERROR))"
            ),
            r"could not create cudnn handle: (?P<status>\w{3,40})",
        ),
    ),
    Entry(
        id="cudnn-no-engine",
        title="cuDNN finds no way to run this convolution",
        layer="resources",
        rank=33,
        cause="cuDNN found no algorithm for this call: mostly because the GPU's memory is full, else for a type or "
        "size this card does not support.",
        fix="Use a smaller batch or image, end other processes on the card, set torch.backends.cudnn.benchmark = "
        "False.",
        command="nvidia-smi",
        text=(
            r"unable to find an engine to execute this computation",
            r"unable to find a valid cuDNN algorithm",
            r"(?P<status>CUDNN_STATUS_NOT_SUPPORTED)",
            r"no execution plans support the graph",
        ),
    ),
)
