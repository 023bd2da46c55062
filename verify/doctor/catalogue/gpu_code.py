"""A library holds no code that this GPU or this driver can run."""

from __future__ import annotations

from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="ptx-newer-than-driver",
        title="GPU code was made by a newer toolkit than the driver can translate",
        layer="driver",
        rank=5,
        cause="A kernel comes as PTX of a toolkit newer than the driver (error 222); a driver takes newer machine "
        "code of the same CUDA family, never newer PTX (550: CUDA 12.4, PTX 8.4).",
        fix='Build the extension with machine code for the card (TORCH_CUDA_ARCH_LIST="8.6;8.9" without +PTX) or '
        "with nvcc 12.4 or older, or update the host's driver; `verify audit` shows which library it is.",
        command='TORCH_CUDA_ARCH_LIST="8.6;8.9" pip install --no-build-isolation --no-binary :all: PACKAGE',
        text=(
            r"UNSUPPORTED_PTX_VERSION",
            r"PTX was compiled with an unsupported toolchain",
            r"ptxas application ptx input.{0,40}unsupported \.version",
            r"cudaErrorUnsupportedPtxVersion",
            r"(?:CUDA|cuModuleLoad)\S{0,40}.{0,40}error.{0,20}\b222\b",
        ),
        hides=("ptxas-version", "jit-failed"),
        source=("googlecolab/colabtools#5667",),
    ),
    Entry(
        id="no-kernel-for-gpu",
        title="A library has no machine code for this GPU",
        layer="driver",
        rank=6,
        cause="The library that was called holds no machine code for this GPU{gpu|} (error 209): an extension was "
        "built for other cards, often in a `docker build` where no GPU could be asked.",
        fix='Build it again with TORCH_CUDA_ARCH_LIST="8.9" (or "8.6;8.9") and FORCE_CUDA=1 in the build; '
        "`verify audit` names the library and what it holds. An image built with SLIM=on holds code for its TARGETS "
        "alone: build it with TARGETS naming this card too, or with SLIM=off.",
        command='TORCH_CUDA_ARCH_LIST="8.9" FORCE_CUDA=1 pip install --no-build-isolation --force-reinstall PACKAGE',
        text=(
            r"no kernel image is available",
            r"CUDA_ERROR_NO_BINARY_FOR_GPU",
            r"cudaErrorNoKernelImageForDevice",
            r"invalid device function",
            r"cudaErrorInvalidDeviceFunction",
            r"named symbol not found.{0,60}(?:CUDA|cudaErrorSymbolNotFound)",
            r"device kernel image is invalid",
            r"CUDA.{0,40}error.{0,12}\b209\b",
        ),
        hides=("cublas-failed", "cudnn-no-engine"),
        source=("rahul-goel/fused-ssim#19", "pytorch/pytorch#66333"),
    ),
    Entry(
        id="torch-lacks-gpu",
        title="This PyTorch was not built for this GPU",
        layer="driver",
        rank=5,
        cause="This build of PyTorch holds no code for a GPU of {sm|this kind}: the card is newer or older than the "
        "build.",
        fix="Install a PyTorch whose build covers it: for a newer card a newer PyTorch (sm_120 needs 2.7 with CUDA "
        "12.8 or newer), for an old card an older one.",
        command="python -c 'import torch; print(torch.__version__, torch._C._cuda_getArchFlags())'",
        text=(
            r"CUDA capability (?P<sm>sm_(?!89)\d{2,3}a?) is not compatible with the current PyTorch",
            r"which is of cuda capability (?P<sm>\d{1,2}\.\d)",
            r"PyTorch no longer supports this GPU",
            r"compiled without support for (?P<sm>sm_\d{2,3}a?)",
            r"minimum cuda capability supported",
        ),
        hides=("no-kernel-for-gpu",),
    ),
    Entry(
        id="gpu-too-old-for-feature",
        title="This GPU lacks what the program asks for",
        layer="program",
        rank=1,
        cause="The function that was called needs a newer kind of GPU than this one: FlashAttention-2 and bfloat16 "
        "need sm_80 or newer, FP8 sm_89, FlashAttention-3 sm_90.",
        fix="Choose another kernel (attn_implementation='sdpa', FlashAttention-2 instead of 3) or float16 on this "
        "card.",
        text=(
            r"flashattention(?:-\d)? only supports \w{2,20}",
            r"only supports ampere GPUs or newer",
            r"only supports hopper",
            r"bfloat16 is only supported on GPUs? with compute capability",
            r"is only supported on CUDA devices with compute capability",
            r"requires? (?:GPU with )?compute capability (?:of )?(?:at least|>=?) ?\d",
            r"your (?:setup|GPU) (?:doesn't|does not) support bf16",
            r"fp8.{0,40}requires? .{0,40}(?:8\.9|sm_?89|ada|hopper)",
        ),
        fault="program",
    ),
    Entry(
        id="cuda-graph-capture",
        title="A CUDA graph was captured or replayed the wrong way",
        layer="program",
        rank=13,
        cause="The program does something while a CUDA graph is captured that may not be captured, or uses a "
        "graph's output after the next run overwrote it.",
        fix="Warm up before the capture, call torch.compiler.cudagraph_mark_step_begin(), clone outputs, or compile "
        "without mode='reduce-overhead'.",
        text=(
            r"output of CUDAGraphs that has been overwritten",
            r"(?:operation|previous error) .{0,40}(?:stream capture|during capture|when stream is capturing)",
            r"cudaErrorStreamCapture\w{4,30}",
            r"CUDA_ERROR_STREAM_CAPTURE_\w{4,30}",
        ),
        hides=("illegal-memory-access",),
        fault="program",
    ),
    Entry(
        id="flash-attention-three-on-other-card",
        title="A kernel for Hopper GPUs was started on another card",
        layer="driver",
        rank=4,
        cause="FlashAttention-3's kernels hold code for sm_90 (H100, H200) only, and xFormers or the program chose "
        "them here.",
        fix="Switch them off (`xformers.ops.fmha.dispatch._set_use_fa3(False)`), use FlashAttention-2 or PyTorch's own "
        "attention.",
        text=(
            r"flash[-_]attention/hopper\S{0,200}.{0,40}(?:invalid|no kernel|error|not supported)",
            r"CUDA error.{0,120}/hopper/",
            r"flash_?attn_?3\S{0,40}.{0,60}(?:requires? (?:sm_?90|hopper|compute capability)|no kernel image)",
        ),
        hides=("no-kernel-for-gpu",),
        source=("facebookresearch/xformers#1338",),
    ),
)
