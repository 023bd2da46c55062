"""torch.compile runs a model uncompiled, and says so quietly or not at all."""

from __future__ import annotations

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="compile-switched-off",
        title="torch.compile is switched off or gives up quietly",
        layer="speed",
        rank=1,
        cause="The model runs uncompiled in part or in whole: a call that Dynamo cannot follow breaks the graph, or "
        "a variable (TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE, TORCHDYNAMO_SUPPRESS_ERRORS) hides the failure.",
        fix="Unset these variables, compile with fullgraph=True to see the place, and use flash-attn 2.7 or newer, "
        "whose functions Dynamo can follow.",
        command="unset TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE TORCHDYNAMO_SUPPRESS_ERRORS; "
        "TORCH_LOGS=graph_breaks python …",
        text=(
            r"graph break (?:due to|from|in|reason|:)",
            r"torch\.\S{0,20}unsupported: ",
            r"(?:TORCH_COMPILE_DISABLE|TORCHDYNAMO_DISABLE|TORCHDYNAMO_SUPPRESS_ERRORS) ?[=:] ?\"?(?:1|true)",
            r"WON'T CONVERT",
            r"falling back to eager",
            r"torch\._dynamo\.exc\.Unsupported",
            r"graph_break_count\W{1,4}[1-9]",
        ),
        facts=facts_stack.compile_off,
        checks=("environment.compile_switches",),
        source=("pytorch/pytorch#128071", "facebookresearch/xformers#765"),
    ),
    Entry(
        id="recompile-limit",
        title="torch.compile gave up after too many recompilations",
        layer="speed",
        rank=2,
        cause="A compiled function was called with ever new shapes or values; after {limit|8} compilations PyTorch "
        "runs it uncompiled, without an error.",
        fix="Compile with dynamic=True or mark the changing dimension (torch._dynamo.mark_dynamic), and look at the "
        "reason given as the last; torch._dynamo.config.fail_on_recompile_limit_hit makes it an error.",
        command="TORCH_LOGS=recompiles python …",
        text=(
            r"hit config\.(?:recompile_limit|cache_size_limit|accumulated_\w{1,24}) \((?P<limit>\d{1,4})\)",
            r"(?:recompile|cache_size)_limit.{0,40}(?:reached|hit|exceeded)",
            r"FailOnRecompileLimitHit",
            r"RecompileLimitExceeded",
        ),
        source=("vllm-project/vllm#27178", "pytorch/pytorch#135458"),
    ),
)
