"""Lines that look like a failure and are none: they are named as harmless, and nothing is wrong because of them."""

from __future__ import annotations

from verify.doctor.entry import Entry


def _harmless(
    ident: str, title: str, cause: str, *text: str, unless: tuple[str, ...] = (), source: tuple[str, ...] = ()
) -> Entry:
    return Entry(
        id=ident,
        title=title,
        layer="harmless",
        cause=cause,
        fix="Nothing has to be done.",
        text=text,
        unless=unless,
        source=source,
        fault="none",
    )


ENTRIES = (
    _harmless(
        "exact-architecture-asked-for",
        "The missing sm_89 in PyTorch's list is no fault",
        "PyTorch's wheels leave sm_89 out on purpose: code for sm_86 and sm_80 runs on sm_89. A program that looks for "
        "the exact "
        "name in torch.cuda.get_arch_list() judges wrongly.",
        r"\(?sm_89\)? (?:is )?not (?:supported|in|listed|compatible)",
        r"sm_89.{0,60}(?:missing|absent|not supported|not compatible)",
        source=("debpalash/VoiceStudio#1285", "pytorch/pytorch#95648"),
    ),
    _harmless(
        "minor-cuda-difference",
        "nvcc and PyTorch may differ in CUDA's minor version",
        "Only the major version of CUDA has to be the same; nvcc 12.4 builds extensions for PyTorch's CUDA 12.8.",
        r"minor version mismatch",
        r"CUDA version (?:has|is).{0,60}most likely (?:be )?no(?:t)? (?:a )?problem",
        r"The detected CUDA version \(1[23]\.\d{1,2}\) has a minor version mismatch",
    ),
    _harmless(
        "nccl-plugin-absent",
        "NCCL's network plugin is optional",
        "NCCL looks for a network plugin and goes on with its own sockets or InfiniBand code when there is none.",
        r"NET/Plugin\W{1,3}.{0,60}(?:could not find|no plugin found|not found|failed to (?:find|load))",
        r"could not find:? ?libnccl-net\.so",
        r"(?:TUNER|PROFILER|tuner)/Plugin\W.{0,60}(?:could not find|not found)",
        r"libnccl-(?:net|tuner)\.so: cannot open shared object file",
    ),
    _harmless(
        "nvml-not-used",
        "PyTorch counts the GPUs without NVML",
        "NVML could not be initialised, and PyTorch then counts the GPUs by CUDA itself; "
        "as long as CUDA works nothing is lost.",
        r"Can't initialize NVML",
    ),
    _harmless(
        "xformers-python-line",
        "xFormers' Python version is no fault",
        "xFormers' extension uses Python's stable interface; the Python it was built with"
        " need not be the one that runs.",
        r"Python {1,4}3\.\d{1,2}\.\d{1,2} \(you have 3\.\d{1,2}",
    ),
    _harmless(
        "no-processes-listed",
        "nvidia-smi lists no processes inside a container",
        "nvidia-smi shows processes of its own PID namespace only; an empty list inside a container says nothing.",
        r"no running processes found",
    ),
    _harmless(
        "idle-link",
        "A slow PCIe link at idle saves power",
        "An idle GPU lowers its PCIe link to generation 1; only its width and its generation under load count.",
        r"LnkSta:\s{0,4}Speed \S{1,8}GT/s \(downgraded\), Width x16\b(?! \(downgraded)",
        r"pcie\.link\.gen\.current\W{1,20}1\b",
    ),
    _harmless(
        "no-cuda-on-build",
        "There is no GPU in an image build",
        "The build of an image has no GPU, and PyTorch says so; extensions need"
        " TORCH_CUDA_ARCH_LIST there and nothing else.",
        r"No CUDA runtime is found, using CUDA_HOME=",
    ),
    _harmless(
        "graph-notices",
        "Notices of TensorFlow and XLA",
        "Libraries that register twice, or the processor's features, are notices of TensorFlow and no faults.",
        r"Unable to register cu(?:DNN|BLAS|FFT) factory",
        r"computation_placer already registered",
        r"This TensorFlow binary is optimized to use available CPU instructions",
        r"TF-TRT Warning: Could not find TensorRT",
    ),
    _harmless(
        "loader-notices",
        "Notices of ldconfig",
        "ldconfig remarks that a file is no link, as on WSL; the library is found all the same.",
        r"libcuda\.so\.1 is not a symbolic link",
    ),
    _harmless(
        "pip-as-root",
        "pip's notices",
        "pip remarks that it runs as root or that a newer pip exists.",
        r"Running pip as the 'root' user",
        r"A new release of pip",
    ),
    _harmless(
        "compiler-notices",
        "Remarks of torch.compile and PyTorch on speed",
        "These are remarks on what could be faster, and no failures.",
        r"Not enough SMs to use max_autotune_gemm",
        r"TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled",
        r"expandable_segments not supported on this platform",
        r"Torch was not compiled with (?:flash attention|memory efficient attention)",
    ),
    _harmless(
        "jupyter-notices",
        "Notices of Jupyter and TensorBoard",
        "Jupyter without an extension and TensorBoard without TensorFlow work with fewer features.",
        r"TensorFlow installation not found - running with reduced feature set",
        r"Could not determine jupyterlab build status",
        r"Unrecognized JSON config file version",
    ),
)
