"""In a child process: compile one Triton kernel to machine code for each compute capability given, without a GPU."""

from __future__ import annotations

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from verify.child import answer


@triton.jit  # type: ignore[untyped-decorator]
def add_one(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """y[i] = x[i] + 1 for i < n; fp32."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1.0, mask=i < n)


sizes = {}
for capability in sys.argv[1:]:
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=add_one, signature=signature, constexprs={"BLOCK": 128})
    cubin = triton.compile(source, target=GPUTarget("cuda", int(capability), 32)).asm["cubin"]
    if cubin[:4] != b"\x7fELF":
        sys.exit(f"Error: the result for sm_{capability} is no machine code")
    sizes[f"sm_{capability}"] = len(cubin)
answer({"message": f"Triton {triton.__version__} compiles for {', '.join(sizes)}.", "bytes": sizes})
