"""Pure, jitted functions of int32 tensors, batched over candidates; the same on CPU and CUDA."""
