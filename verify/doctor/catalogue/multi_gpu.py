"""More than one GPU: NCCL, peer access, rendezvous, MIG and virtual GPUs."""

from __future__ import annotations

from verify.doctor import facts
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="peer-access",
        title="Direct copies between the GPUs hang or fail",
        layer="multi-gpu",
        rank=2,
        cause="NCCL uses direct copies between GPUs (P2P), which GeForce cards such as the RTX 4090 do not support "
        "and which an IOMMU can break: collectives hang at 100 % load, fail, or give zeros.",
        fix="Set NCCL_P2P_DISABLE=1 (and NCCL_IB_DISABLE=1 without InfiniBand); update the driver; on the host "
        "switch off IOMMU/ACS.",
        command="export NCCL_P2P_DISABLE=1; nvidia-smi topo -p2p r",
        text=(
            r"all_?reduce\S{0,20}.{0,40}\bhangs?\b",
            r"RTX 4000 series doesn't support faster communication",
            r"peer access is not supported between",
            r"peer access.{0,40}(?:not supported|already enabled|failed)",
            r"CUDA_ERROR_PEER_ACCESS\w{1,30}",
            r"cudaErrorPeerAccess\w{1,30}",
            r"P2P is disabled between (?:connected )?(?:devices|GPUs)",
            r"failed to (?:enable|use) (?:P2P|peer)",
        ),
        weak=(
            r"watchdog caught collective operation timeout",
            r"WorkNCCL\(.{0,200}ran for \d{4,9} milliseconds before timing out",
            r"collective operation timeout",
        ),
        beside=(r"via P2P", r"NCCL_P2P", r"GeForce", r"\b(?:4090|4080|4070|3090|3080|5090|5080)D?\b"),
        hides=("collective-timeout", "nccl-failed"),
        source=("NVIDIA/nccl-tests#117", "NVIDIA/nccl-tests#287"),
    ),
    Entry(
        id="collective-timeout",
        title="A collective operation timed out",
        layer="multi-gpu",
        rank=20,
        cause="One rank waited for the others until the time limit: a rank crashed or lags (its own error stands "
        "elsewhere), ranks call different operations, or the GPUs or hosts cannot talk to each other.",
        fix="Look for the first error of any rank; if there is none try NCCL_P2P_DISABLE=1, then NCCL_DEBUG=INFO and "
        "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 to see who is missing.",
        command="NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 torchrun …",
        text=(
            r"watchdog caught collective operation timeout",
            r"ran for \d{4,9} milliseconds before timing out",
            r"collective operation timeout",
            r"NCCL communicator was aborted",
            r"heartbeat monitor timed out",
        ),
        hides=("nccl-failed",),
    ),
    Entry(
        id="same-gpu-twice",
        title="Two ranks use the same GPU",
        layer="program",
        rank=12,
        cause="Two processes of the job chose the same GPU: more processes than GPUs, or no "
        "torch.cuda.set_device(LOCAL_RANK).",
        fix="Start as many processes as there are GPUs and set the device from LOCAL_RANK.",
        text=(r"duplicate GPU detected",),
        hides=("nccl-failed", "collective-timeout"),
        fault="program",
    ),
    Entry(
        id="rendezvous-port-taken",
        title="The port for the ranks' meeting is in use",
        layer="multi-gpu",
        rank=3,
        cause="Another job, or a left-over process, has the port {port|29500} where the ranks meet.",
        fix="Use another (`torchrun --master-port 29501`, or --standalone), or end the left-over process.",
        command="ss -ltnp | grep {port|29500}; torchrun --standalone …",
        text=(
            r"EADDRINUSE",
            r"server socket has failed to (?:listen|bind).{0,100}(?:port: (?P<port>\d{2,5}))?",
            r"errno: 98\b",
            r"c10d.{0,200}address already in use",
        ),
        weak=(r"address already in use",),
        beside=(r"server socket has failed", r"MASTER_PORT", r"torch[./]distributed", r"\bc10d\b", r"torchrun"),
        unless=(
            r"docker: Error response",
            r"failed to bind host port",
            r"userland proxy",
            r"uvicorn",
            r"jupyter",
            r"gradio",
        ),
        hides=("rendezvous-unreachable",),
    ),
    Entry(
        id="rendezvous-unreachable",
        title="The ranks do not find each other",
        layer="multi-gpu",
        rank=4,
        cause="A rank cannot reach the address where the ranks meet: a wrong MASTER_ADDR or interface, a firewall, "
        "containers without a common network, or rank 0 that never started.",
        fix="Check MASTER_ADDR and MASTER_PORT, start the containers with --network host, name the interface in "
        "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.",
        command="export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0",
        text=(
            r"timed out after \d{1,8} seconds waiting for clients",
            r"bootstrap : no socket interface found",
            (
                r"(?:socketStartConnect|socketPollConnect|connect to \S{1,60} failed).{0,80}(?:refused|no route|timed"
                r" out|software caused)"
            ),
            r"client socket has timed out",
            r"failed to connect to/from store",
            r"c10d::\w{0,40}DistStoreError",
            r"DistNetworkError",
            r"RendezvousConnectionError",
            r"connectFullMesh failed",
            r"gloo.{0,80}(?:unable to resolve|connection refused|timed out)",
        ),
        hides=("nccl-failed", "collective-timeout"),
    ),
    Entry(
        id="nccl-failed",
        title="NCCL failed",
        layer="multi-gpu",
        rank=30,
        cause="NCCL gave up ({what|an error}), and this text does not say why: the lines with `NCCL WARN` do.",
        fix="Run again with NCCL_DEBUG=WARN and look at the first WARN; /dev/shm (--shm-size=8g), memlock, the "
        "network interface and GPU memory are the usual reasons.",
        command="NCCL_DEBUG=WARN torchrun …",
        text=(
            r"ncclUnhandledCudaError",
            r"ncclSystemError",
            r"ncclInternalError",
            r"ncclRemoteError",
            r"ncclInvalidUsage",
            r"NCCL error (?:in|:).{0,40}",
            r"(?P<what>unhandled (?:cuda|system) error)",
            r"NCCL WARN (?P<what>[^\n]{4,80})",
        ),
        unless=(r"duplicate GPU detected",),
    ),
    Entry(
        id="mig-instance-not-chosen",
        title="No MIG instance is chosen",
        layer="access",
        rank=6,
        cause="The GPU is divided by MIG, and a process sees one instance only when CUDA_VISIBLE_DEVICES names it "
        "by its UUID before the program starts; on a card without MIG such a name selects nothing.",
        fix="Take the UUID from `nvidia-smi -L` and export CUDA_VISIBLE_DEVICES=MIG-…; on a GeForce unset it.",
        command="nvidia-smi -L; export CUDA_VISIBLE_DEVICES=MIG-…",
        text=(
            r"device >= 0 && device < num_gpus",
            r"MIG (?:instance|device).{0,60}not (?:found|visible|set|supported)",
        ),
        weak=(r"no CUDA GPUs are available", r"invalid device ordinal", r"no devices were found"),
        beside=(r"\bMIG-[0-9a-f]{4,12}", r"MIG (?:M\.|mode).{0,20}enabled", r"mig\.mode\.current"),
        facts=facts.slice_not_chosen,
        hides=("no-gpu-visible", "device-number-too-high"),
        source=("pytorch/pytorch#131650", "pytorch/pytorch#130181"),
    ),
    Entry(
        id="virtual-gpu-shim",
        title="The provider's virtual-GPU layer is broken",
        layer="driver",
        rank=8,
        cause="This GPU is a slice made by a preloaded library ({file|libvgpu.so}), which is missing, does not fit "
        "this system, or fails; memory and speed are the slice's, not the card's.",
        fix="Start the container again so that the library is mounted, or ask the provider; "
        "CUDA_DISABLE_CONTROL=true proves it. A path in LD_PRELOAD or /etc/ld.so.preload that is not there can be "
        "removed.",
        command="cat /etc/ld.so.preload; echo $LD_PRELOAD",
        text=(
            r"ld\.so: object '(?P<file>[^']{1,200})' from (?:/etc/ld\.so\.preload|LD_PRELOAD) cannot be preloaded",
            r"libvgpu\.so.{0,80}(?:error|fail|segmentation|not found|cannot)",
            r"\[HAMI-core (?:error|ERROR)",
            r"HAMI-core.{0,60}(?:abort|error|fail)",
            r"vgpu.{0,40}(?:unified_lock|device memory limit|license)",
        ),
        facts=facts.virtual_gpu,
        checks=("environment.preload",),
        source=("Project-HAMi/HAMi#1346", "Project-HAMi/HAMi#777", "Project-HAMi/HAMi#1055"),
    ),
)
