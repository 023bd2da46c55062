"""Operators from every corner of torch, their outputs and the time to the first kernel; run by slim_experiment.py.

python3 slim_operators.py FILE REPEATS      writes the outputs to FILE, prints the figures as JSON
"""

import json
import sys
import time
from pathlib import Path

started = time.monotonic()
import torch  # noqa: E402 - its import is timed

imported = time.monotonic() - started
started = time.monotonic()
(torch.ones(8, device="cuda") * 2).sum().item()
first = time.monotonic() - started
import torch.nn.functional as F  # noqa: E402


def made(*shape, dtype=torch.float32, seed=0):
    g = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(*shape, generator=g).to("cuda", dtype)


a, b = made(512, 512), made(512, 512, seed=1)
h, k = made(512, 512, dtype=torch.float16), made(512, 512, dtype=torch.bfloat16)
image, kernel = made(4, 16, 64, 64), made(32, 16, 3, 3, seed=2)
q, key, v = (made(2, 8, 256, 64, dtype=torch.float16, seed=s) for s in (3, 4, 5))
index = torch.randint(0, 64, (4096,), generator=torch.Generator("cpu").manual_seed(6)).cuda()
spd = a @ a.T + 512 * torch.eye(512, device="cuda")
complexes = torch.complex(a, b)


def attention(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(q, key, v, is_causal=True)


def backward():
    x = image.clone().requires_grad_()
    F.gelu(F.conv2d(x, kernel)).square().mean().backward()
    return x.grad


def adam():
    p = a.clone().requires_grad_()
    optimizer = torch.optim.AdamW([p], fused=True)
    (p * b).sum().backward()
    optimizer.step()
    return p.detach()


def random_numbers():
    torch.manual_seed(7)
    return torch.stack([torch.rand(4096, device="cuda"), torch.randn(4096, device="cuda")])


OPS = {
    "add": lambda: a + b,
    "exp": a.exp,
    "erfinv": lambda: torch.erfinv(a.tanh()),
    "where": lambda: torch.where(a > b, a, b),
    "lgamma": lambda: torch.lgamma(a.abs() + 1),
    "matmul fp32": lambda: a @ b,
    "matmul fp16": lambda: h @ h,
    "matmul bf16": lambda: k @ k,
    "int8 matmul": lambda: torch._int_mm((a * 9).to(torch.int8), (b * 9).to(torch.int8).t()),
    "bmm": lambda: torch.bmm(image[0], image[1]),
    "sum": lambda: image.sum((0, 2)),
    "softmax": lambda: a.softmax(-1),
    "log_softmax bf16": lambda: k.log_softmax(-1),
    "cumsum": lambda: a.cumsum(0),
    "sort": lambda: a.sort(-1).values,
    "topk": lambda: a.topk(9).values,
    "unique": index.unique,
    "median": lambda: a.median(-1).values,
    "scatter_add": lambda: torch.zeros(64, device="cuda").index_add(0, index, made(4096, seed=8)),
    "gather": lambda: a[index % 512],
    "histc": lambda: torch.histc(a, 32),
    "nonzero": (a > 2).nonzero,
    "layer_norm": lambda: F.layer_norm(a, (512,)),
    "batch_norm": lambda: F.batch_norm(image, None, None, training=True),
    "group_norm": lambda: F.group_norm(image, 4),
    "conv2d": lambda: F.conv2d(image, kernel),
    "conv backward": backward,
    "max_pool": lambda: F.max_pool2d(image, 2),
    "interpolate": lambda: F.interpolate(image, scale_factor=1.5, mode="bilinear"),
    "grid_sample": lambda: F.grid_sample(image, made(4, 8, 8, 2).tanh(), align_corners=False),
    "embedding": lambda: F.embedding(index % 512, a),
    "fft": lambda: torch.view_as_real(torch.fft.fft2(image)),
    "complex": lambda: torch.view_as_real(complexes * complexes.conj()),
    "cholesky": lambda: torch.linalg.cholesky(spd),
    "solve": lambda: torch.linalg.solve(spd, b),
    "svd": lambda: torch.linalg.svdvals(a[:64, :64]),
    "eigh": lambda: torch.linalg.eigvalsh(spd),
    "triangular": lambda: torch.linalg.solve_triangular(spd.tril(), b, upper=False),
    "sparse": lambda: torch.sparse.mm((a * (a > 1)).to_sparse(), b),
    "random": random_numbers,
    "dropout": lambda: (torch.manual_seed(9), F.dropout(a))[1],
    "attention flash": lambda: attention("FLASH_ATTENTION"),
    "attention efficient": lambda: attention("EFFICIENT_ATTENTION"),
    "attention cudnn": lambda: attention("CUDNN_ATTENTION"),
    "attention math": lambda: attention("MATH"),
    "fused AdamW": adam,
    "lstm": lambda: (torch.manual_seed(1), torch.nn.LSTM(64, 64).cuda())[1](made(4, 2, 64, seed=9))[0],
    "ctc_loss": lambda: F.ctc_loss(
        made(50, 4, 20).log_softmax(-1), index[:40].view(4, 10) % 19 + 1, (50,) * 4, (10,) * 4
    ),
    "cross_entropy": lambda: F.cross_entropy(a, index[:512]),
    "foreach": lambda: torch.stack(torch._foreach_mul([a, b], 3.0)),
    "fp8": lambda: a.to(torch.float8_e4m3fn).float(),
    "quantize": lambda: torch.fake_quantize_per_tensor_affine(a, 0.1, 0, -128, 127),
}
outputs, errors = {}, {}
for name, op in OPS.items():
    try:
        outputs[name] = [op().detach().cpu() for _ in range(int(sys.argv[2]))]
    except Exception as error:  # noqa: PERF203 - the others are compared all the same
        errors[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
free, total = torch.cuda.mem_get_info()
status = Path("/proc/self/status").read_text().splitlines()
resident = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
torch.save({"outputs": outputs, "errors": errors}, sys.argv[1])
figures = {
    "torch": torch.__file__,
    "import_s": round(imported, 2),
    "first_kernel_s": round(first, 2),
    "all_s": round(time.monotonic() - started, 1),
    "gpu_mib": (total - free - torch.cuda.memory_reserved()) >> 20,
    "host_mib": resident,
}
print(json.dumps(figures))
