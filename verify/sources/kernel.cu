#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void scale(const __nv_bfloat16 *x, __half *y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__bfloat162float(x[i]) * factor);
}
